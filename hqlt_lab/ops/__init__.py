"""Tensors in, tensors out: the two memories as pure functions.

    schedule     which past state of the fast weights is read, what softmax may see
    steps        one step's three numbers: keep, erase, write
    recurrent    the truth: one step at a time, in any dtype
    chunked      the speed: the same function, chunk-parallel
    attention    softmax under a schedule, at the cost of its window
    flops        what both compute, counted from shapes

Layouts: q [B, H, T, K]; k, v [B, H, T * writes, K|V], a token's writes next to each other; gates [B, H, T * writes];
state [B, H, K, V], the transpose of the papers' S, so that a read is `q @ state`.
"""
