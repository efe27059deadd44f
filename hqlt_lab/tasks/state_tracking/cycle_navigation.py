"""Cycle navigation: at which position of a cycle do these steps end?

    tokens 1 (stay), 2 (+1), 3 (-1), 4 (+2), ..., uniform       label 2 max_step + 2 + (sum of steps mod cycle_length)

Counting modulo a small number.  A few steps cannot reach every position, so the labels of very short examples are not
uniform.  The size counts the steps and the answer.

    task: {name: cycle_navigation, cycle_length: 5, max_step: 1}

Deletang et al. 2022, arXiv:2207.02098.  The default of the HQLT code is cycle length 6.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import StateTask


@register("task", "cycle_navigation")
@dataclass(frozen=True, kw_only=True)
class CycleNavigation(StateTask):
    cycle_length: int = 5
    """Number of positions on the cycle."""
    max_step: int = 1
    """Longest step in either direction."""

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"cycle_length": 2, "max_step": 1})

    @property
    def step_values(self) -> list[int]:
        """0, 1, -1, 2, -2, ...: the step of each token, beginning with token 1."""
        return [0, *(sign * size for size in range(1, self.max_step + 1) for sign in (1, -1))]

    @property
    def alphabet(self) -> tuple[str, ...]:
        return (
            "_",
            "stay",
            *(f"{step:+d}" for step in self.step_values[1:]),
            *(f"@{position}" for position in range(self.cycle_length)),
        )

    @property
    def chance_level(self) -> float:
        return 100 / self.cycle_length

    def count_inputs(self, size: int) -> int:
        return len(self.step_values) ** (size - 1)

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        steps = np.array(self.step_values)
        choice = rng.integers("step", 0, len(steps) - 1, width)
        return 1 + choice, 1 + len(steps) + steps[choice].cumsum(1) % self.cycle_length
