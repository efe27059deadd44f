"""Mixers: how the outputs of the two memories are combined."""
