"""Export of trained language models to folders that Hugging Face transformers reads, and import from them.

export_layout          the files of an export, readable without torch
registration           register our classes with transformers' Auto classes
configuration_hqlt     PreTrainedConfig with the composition of a model
modeling_hqlt          PreTrainedModel around our model, and our state as its cache
tokenizer_conversion   convert our tokenizers to tokenizers of transformers
model_card             README.md of an export
export_writer          write a trained cell to an export folder
export_reader          load our model from an export folder
"""
