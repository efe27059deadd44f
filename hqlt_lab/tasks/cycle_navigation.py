"""Cycle navigation: where on the circle do these steps lead?

    tokens 1 (stay), 2 (+1), 3 (-1), 4 (+2), ..., uniform       answer 2 max_step + 2 + (sum of steps mod places)

Counting modulo a small number.  A few steps cannot reach every place, so that the answers to very short examples are
not uniform.  The size counts the steps and the answer.

    task: {name: cycle_navigation, places: 5, max_step: 1}

Deletang et al. 2022, arXiv:2207.02098.  The HQLT code's own default is 6 places.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._state import StateTask


@register("task", "cycle_navigation")
@dataclass(frozen=True, kw_only=True)
class CycleNavigation(StateTask):
    places: int = 5
    """Places on the circle."""
    max_step: int = 1
    """The longest step, in either direction."""

    def mistakes(self) -> list[str]:
        return self.too_small({"places": 2, "max_step": 1})

    @property
    def steps(self) -> list[int]:
        """0, 1, -1, 2, -2, ...: what each token moves, the first being token 1."""
        return [0, *(sign * far for far in range(1, self.max_step + 1) for sign in (1, -1))]

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", "stay", *(f"{step:+d}" for step in self.steps[1:]), *(f"@{place}" for place in range(self.places)))

    @property
    def chance(self) -> float:
        return 100 / self.places

    def variety(self, size: int) -> int:
        return len(self.steps) ** (size - 1)

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        steps = np.array(self.steps)
        choice = draws.integers("step", 0, len(steps) - 1, width)
        return 1 + choice, 1 + len(steps) + steps[choice].cumsum(1) % self.places
