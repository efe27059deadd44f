"""Model: components -> HybridMemory -> Block -> SequenceModel.

config              settings of a model; does not import torch
memory_size_config  heads and channels of a memory; does not import torch
batch_layout        padding and packed documents: where the tokens of a batch are
state               what a layer carries from one call to the next
projections         queries, keys and values of a memory
short_convolution   optional short convolution on queries, keys and values
fast_weights        the fast-weight memory of a layer
softmax_memory      the softmax memory of a layer
gated_convolution   a layer without a memory
meta_tokens         learned vectors in front of every document
hybrid_memory       one layer: two memories and their mixer
block               memory and MLP around a residual stream
sequence_model      tokens to logits
layer_pattern       lists and patterns of settings over the layers
window_override     windows of a model that differ from the declared ones
initialize          seeded initialization of each parameter
analysis/           parameters, state sizes, FLOPs, roofline, probes, lesions, backends
"""
