"""Tokenizers: from texts to numbers and back, one file each."""
