"""A cell's place in the plan of a study: which arm, which seed, which tuned values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hqlt_lab.experiment.experiment import Arm


@dataclass(frozen=True, kw_only=True)
class Place:
    """One cell to be trained."""

    key: str
    arm: Arm
    seed: int
    point: Mapping[str, Any] | None = None  # tuned path -> value; None: the sampler says it, see `Agenda.point`
    number: int | None = None  # of the searched point

    @property
    def counts(self) -> bool:
        """Whether it is reported; otherwise it only finds a point."""
        return self.number is None
