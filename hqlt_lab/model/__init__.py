"""From parts to a model: HybridMemory -> Block -> SequenceModel.

config           what a model is made of, without torch
layout           padding and packed documents: where the tokens of a batch lie
state            what a layer remembers between two calls
convolution      the optional short convolution on queries, keys and values
recall           the fast weights' side of a layer
stretches        documents and rows on the grid of a scan with hold
memory           one layer: two memories and their mixer
block            memory and MLP around a residual stream
sequence_model   tokens to logits
initialise       every parameter from (seed, its name)
state_size       bytes of what a layer remembers
flops            what each part computes
inside           reaching into a model while it reads
probes           which memory does the work
entropy          how widely softmax looks
lesions          one memory falls silent
sizes            parameters, state and FLOPs, part by part
traffic          the numbers each part moves for a token
roofline         the most tokens per second a GPU could train at
"""
