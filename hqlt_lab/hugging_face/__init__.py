"""Trained language models as folders that Hugging Face's transformers reads, and back.

folder      what an export is, without torch
join        transformers learns of us, whichever is imported first
config      the composition as a configuration of transformers
cache       our state as what transformers calls a cache
causal_lm   our model as one of theirs
tokenizer   our tokenizers as theirs
card        the page that tells what the model is
write       a trained cell to a folder
read        a folder to our model
"""
