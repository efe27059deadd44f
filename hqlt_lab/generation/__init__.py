"""Text from trained models: a prompt is read once, then every token costs the same, however long the text is.

text_model   weights, tokenizer and separator of a trained cell
sampling     how the next token is chosen, as data
choose       one token from logits
prompts      prompts to logits and a state
speech       tokens to text as they come
decoding     the rows of a batch, token by token
generate     prompts to texts
recomputed   the slow truth: the whole text before every token
"""
