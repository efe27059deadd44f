"""An arm against its baseline, paired by seed: a seed draws the same weights and batches for every arm.

    d_i = arm with seed i - baseline with seed i              mean, t-interval at Holm's level (`intervals`)
    better, worse       the interval excludes 0, and by the first metric |mean d| is at least `measure.margin`
    undecided           else, with the seeds that would probably decide it

Two cautions.  Where a task is solved or not, both arms may solve it half the time, and with two seeds one of them
looks hopeless by luck in 1 of 8 studies: no verdict there below 3 seeds.  And an arm that lost seeds which its baseline
did not lose is judged by its survivors: it is not called better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hqlt_lab.experiment.cell import digest
from hqlt_lab.experiment.experiment import Arm
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.chance import fisher, sign_flips
from hqlt_lab.report.intervals import Estimate, estimate, holm, step_of

if TYPE_CHECKING:
    from hqlt_lab.report.rows import Row

Verdict = Literal["better", "worse", "undecided"]
Side = tuple["Row", "Row"]
LEAST, LEAST_SOLVED = 2, 3  # seeds for a verdict


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
    why: str = ""  # why it is undecided, where that is not for want of seeds


def with_differences(
    rows: Sequence["Row"], baselines: Mapping[str, str], measure: MeasureConfig, step: float = 0.0
) -> list["Row"]:
    """The same rows, each compared with its baseline by every metric; a metric's comparisons are one family.

    `step` is what one example is worth, in percent.
    """
    by_title = {row.title: row for row in rows if not row.quoted}
    sides = [(row, by_title[baselines[row.title]]) for row in rows if row.title in baselines and not row.quoted]
    found: dict[str, dict[str, Difference]] = {row.title: {} for row in rows}
    for metric in dict.fromkeys(metric for row in rows for metric in row.summaries):
        for (row, _), difference in zip(sides, family(sides, metric, measure, step), strict=True):
            if difference is not None:
                found[row.title][metric] = difference
    return [replace(row, differences=found[row.title]) for row in rows]


def family(sides: Sequence[Side], metric: str, measure: MeasureConfig, step: float) -> list[Difference | None]:
    """Comparisons that are read together, so that their intervals are corrected together."""
    values = (value for side in sides for row in side for value in row.by_seed(metric).values())
    step = step_of(metric, step, values)
    pairs = [differences(arm.by_seed(metric), baseline.by_seed(metric)) for arm, baseline in sides]
    found = [estimate(values, step) if values else None for values in pairs]
    levels = holm([one.p if one else None for one in found])
    return [
        difference_of(side, metric, values, one, level, measure) if one else None
        for side, values, one, level in zip(sides, pairs, found, levels, strict=True)
    ]


def differences(arm: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Of each seed that both have."""
    return [arm[seed] - baseline[seed] for seed in arm if seed in baseline]


def difference_of(
    side: Side, metric: str, values: Sequence[float], found: Estimate, level: float, measure: MeasureConfig
) -> Difference:
    """One comparison, at the level that its family leaves it."""
    verdict, needed, why = judge(side, metric, found, level, measure)
    low, high = found.interval(level) or (None, None)
    ours, theirs = (row.summaries[metric].solved for row in side)
    return Difference(
        baseline=side[1].title,
        n=found.n,
        mean=found.mean,
        low=low,
        high=high,
        confidence=1 - level,
        p=found.p,
        permutation=sign_flips(values),
        fisher=fisher(ours, theirs) if ours and theirs else None,
        verdict=verdict,
        needed=needed,
        why=why,
    )


def judge(
    side: Side, metric: str, found: Estimate, level: float, measure: MeasureConfig
) -> tuple[Verdict | None, int | None, str]:
    """The verdict; where there is none yet the seeds that would bring one, or why none would."""
    reach = found.interval(level)
    if reach is None:
        return None, None, ""
    least = LEAST if measure.solved is None else LEAST_SOLVED
    if metric == measure.first and abs(found.mean) < measure.margin:
        return "undecided", None, "below the margin"
    if reach[0] <= 0 <= reach[1] or found.n < least:
        return "undecided", found.seeds_needed(level, least), ""
    better = (found.mean > 0) == (measure.way(metric) == "maximize")
    winner, loser = side if better else side[::-1]
    if winner.lost(metric) - loser.lost(metric):
        return "undecided", None, f"{winner.title} lost seeds"
    return "better" if better else "worse", None, ""


def baselines_of(arms: Sequence[Arm]) -> dict[str, str]:
    """Title -> title of its baseline; a baseline itself has none.

    The first name at the same levels.  Where there is no other name, the first levels; where single changes are
    listed (`one_at_a_time`), the same name without the change.
    """
    single_changes, alone = any(not arm.levels for arm in arms), len({arm.name for arm in arms}) == 1
    by_levels: dict[str, str] = {}
    by_name: dict[str, str] = {}
    found = {}
    for arm in arms:
        same_levels = by_levels.setdefault(digest(dict(arm.levels)), arm.title)
        same_name = by_name.setdefault(arm.name, arm.title)
        candidate = same_name if alone or (single_changes and same_levels == arm.title) else same_levels
        if candidate != arm.title:
            found[arm.title] = candidate
    return found
