"""Reference to a cell in the plan of a study: its key, arm, seed and tuned values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hqlt_lab.experiment.load_experiment import Arm


@dataclass(frozen=True, kw_only=True)
class CellRef:
    """One planned cell."""

    key: str
    arm: Arm
    seed: int
    point: Mapping[str, Any] | None = None  # tuned path -> value; None: sampled later, see `StudyPlan.resolve_point`
    point_index: int | None = None  # index of the searched point; None: not part of a search

    @property
    def is_reported(self) -> bool:
        """False for a cell that only serves to find the best point of a search."""
        return self.point_index is None
