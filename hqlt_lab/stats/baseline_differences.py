"""Differences between each arm and its baseline, paired by seed, with a verdict.

A seed determines the initial weights and the batches of every arm, so seeds form pairs.

    d_i = arm with seed i - baseline with seed i              mean, t-interval at Holm's level (`intervals`)
    better, worse       the interval excludes 0, and for the primary metric |mean d| is at least `measure.margin`
    equivalent          for the primary metric: the interval lies within the margin (two one-sided tests)
    not_significant     otherwise; from MIN_SEEDS_EXTRAPOLATION seeds on with the number of seeds needed

Four exceptions. A verdict needs at least MIN_SEEDS seeds: two equal arms that each solve the task with probability 1/2
look different with two seeds in 1 of 8 studies, and two seeds do not show whether outcomes are of this kind. If the
values of the arms form two groups (`two_groups`), a difference also needs Fisher's test of the groups at Holm's level.
With fewer than MIN_SEEDS_SPREAD seeds, a verdict also needs the t-test with the pooled spread of all comparisons: if
values form several groups, three seeds of two arms may be in one group each by chance and have almost no spread.
And an arm is not called better than another one if it lost seeds that the other did not lose, because only its
surviving seeds are compared; two arms are not called equivalent if only one of them lost a seed.

If seeds either solve the task or do not (two groups, or `measure.solved`), equivalence also needs an exact test of the
discordant seeds, which only one of the two arms solves. Each changes the difference by up to the range of all values,
or by PERCENT_SPAN if `measure.solved` is set and the metric is in percent. Without this test, two arms of which one
fails with one seed in ten would be equivalent whenever none of a few seeds fails.

A comparison is decided if its interval excludes 0 or lies within the margin. Holm's method orders comparisons by the
smallest level at which they are decided.

The number of seeds needed is that for a power of 80 % if the true difference is the observed one. The detectable
difference is the true difference that the given number of seeds finds with this power.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.experiment.parse_seeds import MIN_SEEDS
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.hashing import hash_json
from hqlt_lab.stats.bimodal_outcomes import find_group_threshold, group_p_value
from hqlt_lab.stats.exact_tests import discordance_p_value
from hqlt_lab.stats.intervals import ALPHA, MAX_SEEDS, MeanEstimate, estimate_mean, holm_levels
from hqlt_lab.stats.metric_scale import is_percentage, metric_resolution

Verdict = Literal["better", "worse", "equivalent", "not_significant"]
MIN_SEEDS_SPREAD = 5  # with fewer seeds the spread of one comparison is compared with that of all
MIN_SEEDS_EXTRAPOLATION = 5  # the 95 % interval of a spread of 3 seeds covers a factor of 12, of 5 seeds 5
PERCENT_SPAN = 100.0  # by how much a seed that is not solved lowers a metric in percent


@dataclass(frozen=True, kw_only=True)
class ArmValues:
    """Values of one metric of one arm."""

    title: ArmTitle
    values: Mapping[int, float]  # by finished seed
    lost_seeds: frozenset[int] = frozenset()  # ended without a finite value


ArmPair = tuple[ArmValues, ArmValues]  # an arm and its baseline


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
    equivalence: float | None = None  # p of the tests of equivalence, before the correction; None without a margin
    permutation: float | None = None  # exact p of the sign-flip test; None: too few seeds to reach 0.05
    fisher: float | None = None  # p of Fisher's test of the solved fractions; None without `measure.solved`
    two_groups: float | None = None  # p of Fisher's test of the two groups of values; None: they form no two groups
    verdict: Verdict | None = None  # None with a single seed
    # seeds for a power of 80 % if the true difference is the observed one; None: significant, or not known
    seeds_needed: int | None = None
    # smallest true difference that n seeds find with a power of 80 %; None: not known
    detectable: float | None = None
    reason: str = ""  # why the verdict is "not_significant", if not because the interval contains 0
    # the last look at this comparison, counted from 1; 0: none yet; None: the number of seeds is fixed
    look: int | None = None


@dataclass(frozen=True, kw_only=True)
class PairTests:
    """Tests of one comparison, before the correction for several comparisons."""

    arm: ArmValues
    baseline: ArmValues
    estimate: MeanEstimate  # of the mean paired difference
    # the same mean with the pooled spread of all comparisons; None: enough seeds to trust the spread of this one
    pooled_estimate: MeanEstimate | None = None
    margin: float  # 0: equivalence is not tested
    group_p: float | None  # Fisher's test of two groups of values; None: they form no two groups
    # numbers of seeds that only the arm and only the baseline solve; None: the task is not solved or not
    discordant_counts: tuple[int, int] | None = None
    discordant_fraction: float = 1.0  # of all seeds, which the margin allows

    @property
    def difference_p(self) -> float | None:
        """p of the tests that the arms differ; None with a single seed."""
        return None if self.estimate.p_value is None else max(self.estimate.p_value, self.pooled_p, self.group_p or 0.0)

    @property
    def pooled_p(self) -> float:
        """p of the test that the arms differ, with the pooled spread; 0 if it is not needed."""
        return (self.pooled_estimate and self.pooled_estimate.p_value) or 0.0

    @property
    def equivalence_p(self) -> float | None:
        """p of the tests that the arms differ by less than the margin; None without a margin or with a single seed."""
        p = self.estimate.equivalence_p_value(self.margin) if self.margin else None
        if p is not None and self.pooled_estimate is not None:
            p = max(p, self.pooled_estimate.equivalence_p_value(self.margin) or 0.0)
        if p is None or self.discordant_counts is None:
            return p
        count = max(self.discordant_counts)
        return max(p, 2 * discordance_p_value(count, self.estimate.n, self.discordant_fraction))

    @property
    def decision_p(self) -> float | None:
        """The smallest level at which the comparison is decided; None with a single seed."""
        within_margin = abs(self.estimate.mean) < self.margin
        return self.equivalence_p if within_margin else self.difference_p

    def required_seeds(self, level: float) -> int | None:
        """Return the number of seeds needed for a decision; None if it cannot be extrapolated."""
        n = self.estimate.n
        if n < MIN_SEEDS_EXTRAPOLATION or self.group_p is not None or any(self.discordant_counts or ()):
            return None
        if abs(self.estimate.mean) >= self.margin:
            return self.estimate.required_seeds(level, n + 1)
        seeds = self.estimate.required_seeds(level, n + 1, self.margin)
        if seeds is None or self.discordant_counts is None or self.discordant_fraction >= 1:
            return seeds
        needed = max(seeds, math.ceil(math.log(level / 2) / math.log1p(-self.discordant_fraction)))
        return needed if needed <= MAX_SEEDS else None


def compare_family(
    arm_pairs: Sequence[ArmPair], metric: str, measure: MeasureConfig, resolution: float, alpha: float = ALPHA
) -> list[Difference | None]:
    """Compare each arm with its baseline by one metric, with intervals corrected jointly by Holm's method.

    The probability that any verdict is false is at most `alpha`. `resolution` is how much one test example changes an
    accuracy, in percent. The difference of a pair without a common seed is None.
    """
    tests = run_pair_tests(arm_pairs, metric, measure, resolution)
    levels = holm_levels([test.decision_p if test else None for test in tests], alpha)
    is_maximized = measure.metric_direction(metric) == "maximize"
    return [
        build_difference(test, level, is_maximized) if test else None for test, level in zip(tests, levels, strict=True)
    ]


def run_pair_tests(
    arm_pairs: Sequence[ArmPair], metric: str, measure: MeasureConfig, resolution: float
) -> list[PairTests | None]:
    """Test each arm against its baseline; None for a pair without a common seed."""
    values_by_arm = {arm.title: arm.values for pair in arm_pairs for arm in pair}
    all_values = [value for by_seed in values_by_arm.values() for value in by_seed.values()]
    resolution = metric_resolution(metric, resolution, all_values)
    group_threshold = find_group_threshold([*values_by_arm.values()])
    is_primary = metric == measure.primary_metric
    is_maximized = measure.metric_direction(metric) == "maximize"
    margin = measure.margin if is_primary else 0.0
    has_threshold = is_primary and measure.solved is not None
    solved_threshold = measure.solved if has_threshold else group_threshold
    span = max(all_values, default=0.0) - min(all_values, default=0.0)
    if has_threshold and is_percentage(metric):
        span = PERCENT_SPAN  # perhaps no seed has shown yet how bad a seed is that does not solve the task
    differences_by_pair = [paired_differences(arm.values, baseline.values) for arm, baseline in arm_pairs]
    estimates = [estimate_mean(differences, resolution) if differences else None for differences in differences_by_pair]
    repeated = [estimate for estimate in estimates if estimate is not None and estimate.n > 1]
    pooled_degrees = sum(estimate.degrees for estimate in repeated)
    pooled_variance = sum(estimate.degrees * estimate.std**2 for estimate in repeated) / max(1, pooled_degrees)
    tests: list[PairTests | None] = []
    for (arm, baseline), estimate in zip(arm_pairs, estimates, strict=True):
        is_solved_or_not = margin > 0 and solved_threshold is not None
        needs_pooling = estimate is not None and 1 < estimate.n < MIN_SEEDS_SPREAD and len(repeated) > 1
        tests.append(
            PairTests(
                arm=arm,
                baseline=baseline,
                estimate=estimate,
                pooled_estimate=replace(estimate, std=math.sqrt(pooled_variance), pooled_degrees=pooled_degrees)
                if needs_pooling
                else None,
                margin=margin,
                group_p=None
                if group_threshold is None
                else group_p_value(arm.values, baseline.values, group_threshold),
                discordant_counts=count_discordant(arm.values, baseline.values, solved_threshold or 0.0, is_maximized)
                if is_solved_or_not
                else None,
                discordant_fraction=min(1.0, margin / span) if span else 1.0,
            )
            if estimate is not None
            else None
        )
    return tests


def paired_differences(arm: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Return arm minus baseline for each seed that both have."""
    return [arm[seed] - baseline[seed] for seed in arm if seed in baseline]


def count_discordant(
    arm: Mapping[int, float], baseline: Mapping[int, float], threshold: float, is_maximized: bool
) -> tuple[int, int]:
    """Return how many seeds only the arm and only the baseline solves, that is, brings to the threshold."""

    def is_solved(value: float) -> bool:
        return value >= threshold if is_maximized else value <= threshold

    pairs = [(is_solved(arm[seed]), is_solved(baseline[seed])) for seed in arm if seed in baseline]
    return pairs.count((True, False)), pairs.count((False, True))


def build_difference(test: PairTests, level: float, is_maximized: bool, next_level: float | None = None) -> Difference:
    """Build one comparison at the significance level assigned by Holm's method.

    `next_level` is the level for more seeds; None: the same.
    """
    verdict, reason = decide_verdict(test, level, is_maximized)
    low, high = test.estimate.confidence_interval(level) or (None, None)
    has_detectable = test.estimate.n >= MIN_SEEDS and test.group_p is None
    return Difference(
        baseline=test.baseline.title,
        n=test.estimate.n,
        mean=test.estimate.mean,
        low=low,
        high=high,
        confidence=1 - level,
        p=test.estimate.p_value,
        equivalence=test.equivalence_p,
        two_groups=test.group_p,
        verdict=verdict,
        seeds_needed=test.required_seeds(next_level or level) if verdict == "not_significant" and not reason else None,
        detectable=test.estimate.detectable_difference(level) if has_detectable else None,
        reason=reason,
    )


def decide_verdict(test: PairTests, level: float, is_maximized: bool) -> tuple[Verdict | None, str]:
    """Return the verdict at this level, and the reason of "not_significant" if it is not that the interval is wide."""
    interval = test.estimate.confidence_interval(level)
    if interval is None:
        return None, ""
    if test.estimate.n < MIN_SEEDS:
        return "not_significant", f"fewer than {MIN_SEEDS} seeds"
    if test.equivalence_p is not None and test.equivalence_p <= level:
        if not is_blocked_by_lost_seeds(test, is_maximized):
            return "equivalent", ""
        loser = max(test.arm, test.baseline, key=lambda arm: len(arm.lost_seeds))
        return "not_significant", f"{loser.title} lost seeds"
    if interval[0] <= 0 <= interval[1]:
        return "not_significant", ""
    if abs(test.estimate.mean) < test.margin:
        return "not_significant", "below the margin"
    if test.pooled_p > level:
        return "not_significant", "with the pooled spread of all arms"
    if test.group_p is not None and test.group_p > level:
        return "not_significant", "values form two groups"
    arm_is_better = (test.estimate.mean > 0) == is_maximized
    if is_blocked_by_lost_seeds(test, is_maximized):
        return "not_significant", f"{(test.arm if arm_is_better else test.baseline).title} lost seeds"
    return "better" if arm_is_better else "worse", ""


def is_blocked_by_lost_seeds(test: PairTests, is_maximized: bool) -> bool:
    """Return whether lost seeds rule out the verdict that the mean shows.

    Two arms are not equivalent if only one of them lost a seed. Otherwise the better one must not have lost a seed that
    the other did not lose.
    """
    if abs(test.estimate.mean) < test.margin:
        return bool(test.arm.lost_seeds ^ test.baseline.lost_seeds)
    arm_is_better = (test.estimate.mean > 0) == is_maximized
    winner, loser = (test.arm, test.baseline) if arm_is_better else (test.baseline, test.arm)
    return bool(winner.lost_seeds - loser.lost_seeds)


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
