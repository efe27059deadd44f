"""Attention: how softmax reads the tokens of its window."""
