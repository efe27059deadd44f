"""Tensors in, tensors out: the two memories as pure functions.

    schedule     which past state of the fast weights is read, what softmax may see
    steps        one step's three numbers: keep, erase, write
    recurrent    the truth: one step at a time, in any dtype
    chunked      the speed: the same function, chunk-parallel
    pieces, fading, chunk, chunk_backward, text, scan      what it is made of, from the cuts to the operator
    running_sum  sums that can be asked to come out the same every time
    attention    softmax under a schedule, at the cost of its window
    windowed     the same for a window on a CPU, in the cache
    linear       a linear memory, scanned by whatever does it fastest
    backends, choosing         what can compute the two memories, and how a job finds it
    fla_scan, flash, flex      kernels for GPUs; spread: any course in the form that such kernels know
    swiglu       a gated MLP on a CPU, in the cache
    flops        what they compute, counted

Layouts: q [B, H, T, K]; k, v [B, H, T * writes, K|V], a token's writes next to each other; gates [B, H, T * writes];
state [B, H, K, V], the transpose of the papers' S, so that a read is `q @ state`.
"""
