"""Stack manipulation: what is on the stack after these operations?

    bits of the stack from the bottom to the top, then operations: pop, push 0, push 1       all uniform
    then marks: one more than tokens before them        labels: the stack from its top to its bottom, then the end

A row of n tokens has 1 to n - 1 bits, uniform.  To pop from an empty stack has no effect.  Marks behind the end have no
labels.

    task: {name: stack_manipulation, train_length: [2, 40], test_length: [41, 80]}

Deletang et al. 2022, arXiv:2207.02098.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks.stacks._transduction_task import TransductionTask

FIRST_BIT, POP, FIRST_PUSH, END = 2, 4, 5, 7


@register("task", "stack_manipulation")
@dataclass(frozen=True, kw_only=True)
class StackManipulation(TransductionTask):
    train_length: tuple[int, int] = (2, 40)
    """Smallest and largest number of bits and operations in train and short."""
    test_length: tuple[int, int] = (41, 80)
    """Smallest and largest number of bits and operations in test."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", "?", "0", "1", "pop", "push0", "push1", "end")

    @property
    def chance_level(self) -> float:
        return 100 / 3

    def output_size(self, size: Any) -> Any:
        return size + 1

    def count_inputs(self, size: int) -> int:
        tokens = (size - 1) // 2
        return sum(2**bits * 3 ** (tokens - bits) for bits in range(1, tokens))

    def write_output(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray]:
        rows, position = np.arange(len(sizes)), np.arange(longest)
        num_bits = rng.integers("bits", 1, sizes - 1)  # [B, 1]
        bits = rng.integers("bit", 0, 1, longest)
        operations = rng.integers("operation", POP, POP + 2, longest)
        tokens = np.where(position < num_bits, FIRST_BIT + bits, operations)
        stack, height = np.zeros((len(sizes), longest + 1), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
        for column in position:
            token, is_active = tokens[:, column], column < sizes[:, 0]
            height = np.where(is_active & (token == POP), np.maximum(height - 1, 0), height)
            is_push = is_active & (token != POP)
            pushed = np.where(token < POP, token, token - FIRST_PUSH + FIRST_BIT)
            stack[rows, height] = np.where(is_push, pushed, stack[rows, height])
            height += is_push
        from_top = height[:, None] - 1 - np.arange(longest + 1)
        outputs = np.where(from_top >= 0, np.take_along_axis(stack, np.maximum(from_top, 0), 1), -1)
        np.put_along_axis(outputs, height[:, None], END, 1)
        return tokens, outputs
