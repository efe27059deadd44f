"""Positions: how softmax attention encodes token positions."""
