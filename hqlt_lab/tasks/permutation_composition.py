"""Permutation composition: what is the product of these permutations?

    tokens g_1, g_2, ... uniform in the group          answer after t tokens: g_t o ... o g_2 o g_1

(g o h)(x) = g(h(x)): the first token acts first.  Token 1 is the identity, the others follow in the lexicographic order
of their images; answers use the same tokens.  S5 and A5 are not solvable: composing them is complete for NC1, which is
believed to be out of reach of a Transformer of fixed depth.  The size counts the permutations and the answer.

    task: {name: permutation_composition, group: S5, label: every}

Liu et al. 2022, arXiv:2210.10749.  Merrill, Petty, Sabharwal 2024, arXiv:2404.08819.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from typing import Literal

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._state import Label, StateTask


@register("task", "permutation_composition")
@dataclass(frozen=True, kw_only=True)
class PermutationComposition(StateTask):
    label: Label = "every"
    """Where an answer is due: at the last token; at every one; or so in training alone."""
    group: Literal["S3", "S4", "S5", "A5"] = "S3"
    """All permutations of that many things, or (A5) the even ones."""

    @cached_property
    def elements(self) -> list[tuple[int, ...]]:
        """The images of 0, 1, 2, ... under each permutation."""
        every = permutations(range(int(self.group[1])))
        return [element for element in every if self.group[0] == "S" or is_even(element)]

    @cached_property
    def product(self) -> Ints:
        """[n, n]: the number of g o h."""
        number = {element: place for place, element in enumerate(self.elements)}
        return np.array([[number[tuple(g[x] for x in h)] for h in self.elements] for g in self.elements])

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", *("".join(map(str, element)) for element in self.elements))

    @property
    def chance(self) -> float:
        return 100 / len(self.elements)

    def variety(self, size: int) -> int:
        return len(self.elements) ** (size - 1)

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        chosen = draws.integers("element", 0, len(self.elements) - 1, width)
        so_far = chosen.T.copy()  # [T, B]: a step is a row
        for t in range(1, width):
            so_far[t] = self.product[so_far[t], so_far[t - 1]]
        return 1 + chosen, 1 + so_far.T


def is_even(element: tuple[int, ...]) -> bool:
    """Whether an even number of pairs stands in the wrong order."""
    return sum(one > other for one, other in combinations(element, 2)) % 2 == 0
