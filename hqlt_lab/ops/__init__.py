"""Pure tensor functions for the two memories: fast weights and softmax attention.

    memory_schedule    which past state of the fast weights a token reads, and which tokens softmax sees
    gates              the gates of a linear update step, and the context of a scan
    precision          autocast and float32 helpers
    dispatch           backend selection, and `linear_scan`, which runs a linear rule on the selected backend
    flops              FLOPs of the operators, counted from shapes
    autograd_context   the type of the context object in the autograd formulas of custom operators
    scan/              scans of the fast weights: step-by-step reference, chunk-parallel scan, fla's kernels
    attention/         softmax attention under a schedule: dense reference, blocks and bands, flash-attn, flex_attention
    fused/             memory-saving operators: gated MLP and cross-entropy

Layouts: q [B, H, T, K]; k, v [B, H, T * writes, K|V], with the writes of a token next to each other; gates
[B, H, T * writes] or with channels; state [B, H, K, V], the transpose of the papers' S, so that a read is `q @ state`.
"""
