"""Differences between each arm and its baseline, paired by seed, with a verdict.

A seed determines the initial weights and the batches of every arm, so seeds form pairs.

    d_i = arm with seed i - baseline with seed i              mean, t-interval at Holm's level (`intervals`)
    better, worse       the interval excludes 0, and for the primary metric |mean d| is at least `measure.margin`
    not_significant     otherwise; from MIN_SEEDS_EXTRAPOLATION seeds on with the number of seeds needed

Three exceptions. A verdict needs at least MIN_SEEDS seeds: two equal arms that each solve the task with probability 1/2
look different with two seeds in 1 of 8 studies, and two seeds do not show whether outcomes are of this kind. If the
values of the arms form two groups (`two_groups`), a verdict also needs Fisher's test of the groups at Holm's level. And
an arm is not called better than another one if it lost seeds that the other did not lose, because only its surviving
seeds are compared.

The number of seeds is that for a power of 80 % if the true difference is the observed one. Adding seeds until a verdict
appears is optional stopping: it raises the probability of a false verdict above 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.hashing import hash_json
from hqlt_lab.report.stats.exact_tests import fisher_p_value, sign_flip_p_value
from hqlt_lab.report.stats.intervals import MeanEstimate, estimate_mean, holm_levels, metric_resolution
from hqlt_lab.report.stats.two_group_outcomes import find_group_threshold, group_p_value

if TYPE_CHECKING:
    from hqlt_lab.report.arm_rows import Row

Verdict = Literal["better", "worse", "not_significant"]
ArmPair = tuple["Row", "Row"]
MIN_SEEDS = 3  # required for a verdict
MIN_SEEDS_EXTRAPOLATION = 5  # the 95 % interval of a spread of 3 seeds covers a factor of 12, of 5 seeds 5


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Difference between an arm and its baseline for one metric, over the seeds that both finished."""

    baseline: ArmTitle
    n: int  # number of seeds that both finished
    mean: float
    low: float | None = None  # Holm-corrected interval of the mean; None with a single pair
    high: float | None = None
    confidence: float = 0.95  # of the interval, after the correction
    p: float | None = None  # of the paired t-test, before the correction
    permutation: float | None = None  # exact p of the sign-flip test; None: too few seeds to reach 0.05
    fisher: float | None = None  # p of Fisher's test of the solved fractions; None without `measure.solved`
    two_groups: float | None = None  # p of Fisher's test of the two groups of values; None: they form no two groups
    verdict: Verdict | None = None  # None with a single seed
    # seeds for a power of 80 % if the true difference is the observed one; None: significant, or not known
    seeds_needed: int | None = None
    reason: str = ""  # why the verdict is "not_significant", if not because the interval contains 0


def attach_differences(
    rows: Sequence["Row"], baselines: Mapping[ArmTitle, ArmTitle], measure: MeasureConfig, resolution: float = 0.0
) -> list["Row"]:
    """Return the rows with their differences from the baseline for every metric.

    All comparisons of one metric form a family for Holm's correction. `resolution` is how much one test example
    changes an accuracy, in percent.
    """
    by_title = {row.title: row for row in rows if not row.is_quoted}
    arm_pairs = [(row, by_title[baselines[row.title]]) for row in rows if row.title in baselines and not row.is_quoted]
    differences: dict[str, dict[str, Difference]] = {row.title: {} for row in rows}
    for metric in dict.fromkeys(metric for row in rows for metric in row.summaries):
        for (row, _), difference in zip(arm_pairs, compare_family(arm_pairs, metric, measure, resolution), strict=True):
            if difference is not None:
                differences[row.title][metric] = difference
    return [replace(row, differences=differences[row.title]) for row in rows]


def compare_family(
    arm_pairs: Sequence[ArmPair], metric: str, measure: MeasureConfig, resolution: float
) -> list[Difference | None]:
    """Compare each arm with its baseline by one metric, with intervals corrected jointly by Holm's method."""
    values_by_arm = {row.title: row.values_by_seed(metric) for pair in arm_pairs for row in pair}
    resolution = metric_resolution(
        metric, resolution, (value for by_seed in values_by_arm.values() for value in by_seed.values())
    )
    differences = [
        paired_differences(values_by_arm[arm.title], values_by_arm[baseline.title]) for arm, baseline in arm_pairs
    ]
    estimates = [estimate_mean(values, resolution) if values else None for values in differences]
    threshold = find_group_threshold([*values_by_arm.values()])
    group_p_values = [
        None if threshold is None else group_p_value(values_by_arm[arm.title], values_by_arm[baseline.title], threshold)
        for arm, baseline in arm_pairs
    ]
    levels = holm_levels(
        [
            max(estimate.p_value, group_p or 0.0) if estimate and estimate.p_value is not None else None
            for estimate, group_p in zip(estimates, group_p_values, strict=True)
        ]
    )
    return [
        build_difference(pair, metric, values, estimate, group_p, level, measure) if estimate else None
        for pair, values, estimate, group_p, level in zip(
            arm_pairs, differences, estimates, group_p_values, levels, strict=True
        )
    ]


def paired_differences(arm: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Return arm minus baseline for each seed that both have."""
    return [arm[seed] - baseline[seed] for seed in arm if seed in baseline]


def build_difference(
    arm_pair: ArmPair,
    metric: str,
    values: Sequence[float],
    estimate: MeanEstimate,
    group_p: float | None,
    level: float,
    measure: MeasureConfig,
) -> Difference:
    """Build one comparison at the significance level assigned by Holm's method."""
    verdict, seeds_needed, reason = decide_verdict(arm_pair, metric, estimate, group_p, level, measure)
    interval = estimate.confidence_interval(level)
    ranges = [row.percent_ranges.get(metric) for row in arm_pair]
    if interval is not None and ranges[0] is not None and ranges[1] is not None:
        interval = ranges[0].clip_difference(interval, ranges[1])
    low, high = interval or (None, None)
    arm_solved, baseline_solved = (row.summaries[metric].solved for row in arm_pair)
    return Difference(
        baseline=arm_pair[1].title,
        n=estimate.n,
        mean=estimate.mean,
        low=low,
        high=high,
        confidence=1 - level,
        p=estimate.p_value,
        permutation=sign_flip_p_value(values),
        fisher=fisher_p_value(arm_solved, baseline_solved) if arm_solved and baseline_solved else None,
        two_groups=group_p,
        verdict=verdict,
        seeds_needed=seeds_needed,
        reason=reason,
    )


def decide_verdict(
    arm_pair: ArmPair,
    metric: str,
    estimate: MeanEstimate,
    group_p: float | None,
    level: float,
    measure: MeasureConfig,
) -> tuple[Verdict | None, int | None, str]:
    """Return the verdict, and if not significant the number of seeds needed or the reason, where known."""
    interval = estimate.confidence_interval(level)
    if interval is None:
        return None, None, ""
    if metric == measure.primary_metric and abs(estimate.mean) < measure.margin:
        return "not_significant", None, "below the margin"
    if estimate.n < MIN_SEEDS:
        return "not_significant", None, f"fewer than {MIN_SEEDS} seeds"
    if interval[0] <= 0 <= interval[1]:
        can_extrapolate = estimate.n >= MIN_SEEDS_EXTRAPOLATION and group_p is None
        return "not_significant", estimate.required_seeds(level, estimate.n + 1) if can_extrapolate else None, ""
    if group_p is not None and group_p > level:
        return "not_significant", None, "values form two groups"
    arm_is_better = (estimate.mean > 0) == (measure.metric_direction(metric) == "maximize")
    winner, loser = arm_pair if arm_is_better else arm_pair[::-1]
    if winner.seeds_without_value(metric) - loser.seeds_without_value(metric):
        return "not_significant", None, f"{winner.title} lost seeds"
    return "better" if arm_is_better else "worse", None, ""


def find_baselines(arms: Sequence[Arm]) -> dict[ArmTitle, ArmTitle]:
    """Return the title of each arm's baseline by the arm's title; baselines themselves are omitted.

    The baseline is the first arm with the same crossed levels. If all arms have the same name, it is the first one;
    with single changes (`one_at_a_time`), it is the arm of the same name without the change.
    """
    single_changes, single_name = any(not arm.levels for arm in arms), len({arm.name for arm in arms}) == 1
    by_levels: dict[str, ArmTitle] = {}
    by_name: dict[str, ArmTitle] = {}
    baselines = {}
    for arm in arms:
        same_levels = by_levels.setdefault(hash_json(dict(arm.levels)), arm.title)
        same_name = by_name.setdefault(arm.name, arm.title)
        candidate = same_name if single_name or (single_changes and same_levels == arm.title) else same_levels
        if candidate != arm.title:
            baselines[arm.title] = candidate
    return baselines
