"""How softmax knows where a token stood."""
