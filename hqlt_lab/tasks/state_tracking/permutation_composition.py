"""Permutation composition: what is the product of these permutations?

    tokens g_1, g_2, ... uniform in the group          label after t tokens: g_t o ... o g_2 o g_1

(g o h)(x) = g(h(x)): the first token acts first.  Token 1 is the identity, the others follow in the lexicographic order
of their images; labels use the same tokens.  S5 and A5 are not solvable groups: composing their elements is complete
for NC1, which is believed to be out of reach of a Transformer of fixed depth.  The size counts the permutations and the
answer.

    task: {name: permutation_composition, group: S5, label: every}

Liu et al. 2022, arXiv:2210.10749.  Merrill, Petty, Sabharwal 2024, arXiv:2404.08819.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from typing import Literal

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import LabelMode, StateTask


@register("task", "permutation_composition")
@dataclass(frozen=True, kw_only=True)
class PermutationComposition(StateTask):
    label: LabelMode = "every"
    """Labeled tokens: the last one, every one, or every one in training only."""
    group: Literal["S3", "S4", "S5", "A5"] = "S3"
    """Group of all permutations (S) or of the even ones (A) of that many elements."""

    @cached_property
    def group_elements(self) -> list[tuple[int, ...]]:
        """Images of 0, 1, 2, ... under each permutation."""
        candidates = permutations(range(int(self.group[1])))
        return [element for element in candidates if self.group[0] == "S" or is_even(element)]

    @cached_property
    def product_table(self) -> IntArray:
        """Index of g o h for each pair of elements g, h, [n, n]."""
        index = {element: number for number, element in enumerate(self.group_elements)}
        return np.array([[index[tuple(g[x] for x in h)] for h in self.group_elements] for g in self.group_elements])

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", *("".join(map(str, element)) for element in self.group_elements))

    @property
    def chance_level(self) -> float:
        return 100 / len(self.group_elements)

    def count_inputs(self, size: int) -> int:
        return len(self.group_elements) ** (size - 1)

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        chosen = rng.integers("element", 0, len(self.group_elements) - 1, width)
        products = chosen.T.copy()  # [T, B], so that each step is a contiguous row
        for t in range(1, width):
            products[t] = self.product_table[products[t], products[t - 1]]
        return 1 + chosen, 1 + products.T


def is_even(element: tuple[int, ...]) -> bool:
    """Return whether the permutation has an even number of inversions."""
    return sum(a > b for a, b in combinations(element, 2)) % 2 == 0
