"""Tokenizers, one per file: from text to token ids and back."""
