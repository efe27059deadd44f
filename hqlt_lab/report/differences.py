"""An arm against its baseline."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An arm minus its baseline, by one metric, over the seeds that both have."""

    baseline: str  # its title
    n: int  # seeds that both have
    mean: float
    low: float | None = None  # Holm-corrected interval of the mean; None: one pair has none
    high: float | None = None
    confidence: float = 0.95  # of that interval, after the correction
    p: float | None = None  # of the paired t-test, before the correction
    permutation: float | None = None  # exact p of the signs; None: so few seeds cannot reach 0.05
    fisher: float | None = None  # of the solved fractions; None: nothing is called solved
    verdict: Verdict | None = None  # None: one seed gives none
    needed: int | None = None  # seeds that would probably decide it; None: decided, or no number would
