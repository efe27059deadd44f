"""Parity: is the number of ones odd?

    tokens 1 (zero) and 2 (one), uniform          label 1 + (number of twos mod 2)

One bit of state that every token may flip: softmax attention does not extrapolate to longer sequences, and fast weights
need the eigenvalue -1 (max_beta 2).  The size counts the bits and the answer.

    task: {name: parity, train_length: [3, 40], test_length: [40, 256]}

Grazzi et al. 2024, arXiv:2411.12537.  Settings of the HQLT paper.
"""

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import StateTask


@register("task", "parity")
class Parity(StateTask):
    alphabet = ("_", "0", "1")
    chance_level = 50.0

    def count_inputs(self, size: int) -> int:
        return 2 ** (size - 1)

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        tokens = rng.integers("bit", 1, 2, width)
        return tokens, 1 + (tokens - 1).cumsum(1) % 2
