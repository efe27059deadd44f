"""Softmax attention under a schedule.

scheduled_softmax      `attend`: selects a backend and the cheapest form; `attend_dense` is the reference
forget_gate_channels   forget gates as extra channels of queries and keys
sliding_window_cpu     attention over a window on a CPU, as a torch operator with its own backward
flash                  the kernels of flash-attn
flex                   torch's flex_attention
"""
