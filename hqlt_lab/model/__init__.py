"""From parts to a model: HybridMemory -> Block -> SequenceModel.

config           what a model is made of, without torch
state            what a layer remembers between two calls
convolution      the optional short convolution on queries, keys and values
memory           one layer: two memories and their mixer
block            memory and MLP around a residual stream
sequence_model   tokens to logits
initialise       every parameter from (seed, its name)
state_size       bytes of what a layer remembers
flops            what each part computes
sizes            parameters, state and FLOPs, part by part
"""
