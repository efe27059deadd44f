"""Scans of the fast weights.

recurrent                step-by-step reference, in any dtype, for linear and nonlinear rules
chunked                  chunk-parallel scan of linear rules, as a torch operator with its own backward
channel_gate_scan        chunk-parallel scan with gates per channel and lookup keys of their own
channel_gate_chunk       forward and backward of one chunk with gates per channel
chunk_layout             how a sequence is cut into chunks
chunked_inputs           the inputs of a scan: rows in groups that fit the cache, cut into chunks
chunk_decay              decay factors within a chunk
scalar_gate_chunk        forward and backward of one chunk with gates that are one number per head
triangular_inverse       inverse of the triangular system of a chunk
scratch_buffers          buffers that all chunks share
deterministic_cumsum     cumulative sums that are reproducible on a GPU
fla_scan                 scan with the kernels of flash-linear-attention
fla_kernels              which kernel computes which rule, and its arguments
external_kernel_inputs   conversion to the plain form that external kernels support
"""
