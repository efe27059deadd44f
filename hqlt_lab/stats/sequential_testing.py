"""Verdicts at several looks: seeds are added until a comparison is decided, and the error rate is held over all looks.

    look k tests the first n_k seeds at alpha_k        n_1 < n_2 < ...        sum of all alpha_k <= alpha
    alpha_k = alpha / 5                                for k = 1, ..., 4
    alpha_k = alpha / 5 / 2^(k - 4)                    for k = 5, 6, ...

At look k the comparisons that are not decided yet are tested by Holm's method at alpha_k. A comparison that is decided
keeps the verdict and the interval of that look, and its arm gets no more seeds.

Why any false verdict has a probability of at most alpha: consider the first one. Until then every comparison without a
true difference is among those that are tested, so Holm's method at look k bounds the probability that the first false
verdict occurs at look k by alpha_k. The sum over all looks is at most alpha. This union bound holds for every
distribution and for exact tests, and however much the looks have in common. Functions such as that of Lan and DeMets
spend less per look, but they need the joint distribution of the test statistics, which is known for many normal values
and not for a few seeds or for Fisher's test.

alpha_k does not depend on the number of looks, and a fifth of alpha is left for looks after the fourth. So `seeds.max`
may be raised later: the looks that were taken stay as they are.

A look is taken when every seed that it needs has ended, with a value or without. A seed that diverged, failed or was
pruned has no value, and a look never waits for it. A comparison is closed without a verdict, and its arm gets no more
seeds, if no seed of both arms has a value, or if the verdict that the values show is ruled out by lost seeds
(`baseline_differences`), which further seeds cannot change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.stats.baseline_differences import (
    ArmPair,
    ArmValues,
    Difference,
    PairTests,
    build_difference,
    decide_verdict,
    is_blocked_by_lost_seeds,
    run_pair_tests,
)
from hqlt_lab.stats.intervals import ALPHA, holm_levels

EQUAL_LOOKS = 4  # looks that spend the same share of alpha; the last share is for all later looks together
DECIDED_VERDICTS = ("better", "worse", "equivalent")


@dataclass(frozen=True)
class LookSchedule:
    """The reported seeds in order, and the numbers of seeds after which verdicts are computed."""

    seeds: tuple[int, ...]
    counts: tuple[int, ...]  # increasing, at most the number of seeds


@dataclass(frozen=True)
class LookResult:
    """Comparisons after all looks that could be taken."""

    differences: list[Difference | None]  # None: no seed of both arms has a value
    counts: tuple[int, ...]  # numbers of seeds of the looks that were taken
    # of each comparison: the look, counted from 1, at which it was decided or closed; None: more seeds may decide it
    end_looks: list[int | None]

    @property
    def num_decided(self) -> int:
        return sum(difference is not None and difference.verdict in DECIDED_VERDICTS for difference in self.differences)

    @property
    def num_open(self) -> int:
        """The number of comparisons that get seeds for the next look."""
        return self.end_looks.count(None)


def spend_alpha(look: int, alpha: float = ALPHA) -> float:
    """Return the error probability that a look, counted from 1, may spend."""
    return alpha / (EQUAL_LOOKS + 1) / 2 ** max(0, look - EQUAL_LOOKS)


def compare_at_looks(
    arm_pairs: Sequence[ArmPair],
    metric: str,
    measure: MeasureConfig,
    resolution: float,
    schedule: LookSchedule,
    num_looks: int | None = None,
) -> LookResult:
    """Compare each arm with its baseline by one metric, at every look whose seeds have ended.

    `num_looks`: take exactly this many looks. It is set for metrics other than the first, which have no influence on
    the number of seeds: an arm that got no more seeds then counts as not decided at later looks. `resolution` is how
    much one test example changes an accuracy, in percent.
    """
    is_maximized = measure.metric_direction(metric) == "maximize"
    latest: list[LookTest | None] = [None] * len(arm_pairs)
    end_looks: list[int | None] = [None] * len(arm_pairs)
    seed_counts: list[int] = []
    for look, count in enumerate(schedule.counts[:num_looks], 1):
        seeds = schedule.seeds[:count]
        ready = [end is None and have_ended(pair, seeds) for pair, end in zip(arm_pairs, end_looks, strict=True)]
        if num_looks is None and (None not in end_looks or sum(ready) < end_looks.count(None)):
            break
        seed_counts.append(count)
        tests = run_pair_tests([select_seeds(pair, seeds) for pair in arm_pairs], metric, measure, resolution)
        levels = holm_levels(count_undecided(tests, ready, latest), spend_alpha(look))
        for index, (test, level) in enumerate(zip(tests, levels, strict=True)):
            if ready[index] and test is not None:
                verdict, _ = decide_verdict(test, level, is_maximized)
                latest[index] = LookTest(test, level, look, verdict in DECIDED_VERDICTS)
            if ready[index] and is_closed(test, level, latest[index], is_maximized):
                end_looks[index] = look
    if not seed_counts and schedule.counts:
        differences = preview_first_look(arm_pairs, metric, measure, resolution, schedule.counts[0])
    else:
        differences = [build_look_difference(look_test, is_maximized) for look_test in latest]
    return LookResult(differences, tuple(seed_counts), end_looks)


@dataclass(frozen=True)
class LookTest:
    """The tests of one comparison at a look."""

    test: PairTests
    level: float
    look: int
    is_decided: bool


def build_look_difference(look_test: LookTest | None, is_maximized: bool) -> Difference | None:
    """Build one comparison as it was at its last look. More seeds would be tested at the level of the next look."""
    if look_test is None:
        return None
    next_level = look_test.level * spend_alpha(look_test.look + 1) / spend_alpha(look_test.look)
    difference = build_difference(look_test.test, look_test.level, is_maximized, next_level)
    return replace(difference, look=look_test.look)


def have_ended(pair: ArmPair, seeds: Sequence[int]) -> bool:
    """Return whether all these seeds of an arm and its baseline have ended, with a value or without."""
    return all(seed in arm.values or seed in arm.lost_seeds for arm in pair for seed in seeds)


def select_seeds(pair: ArmPair, seeds: Sequence[int]) -> ArmPair:
    """Return an arm and its baseline with these seeds only."""
    arm, baseline = (
        ArmValues(
            title=each.title,
            values={seed: each.values[seed] for seed in seeds if seed in each.values},
            lost_seeds=each.lost_seeds & set(seeds),
        )
        for each in pair
    )
    return arm, baseline


def count_undecided(
    tests: Sequence[PairTests | None], ready: Sequence[bool], latest: Sequence[LookTest | None]
) -> list[float | None]:
    """Return the p-values for Holm's method: None for decided comparisons, 1 for those that cannot be tested.

    What cannot be tested still counts as a comparison, so that the correction does not depend on which seeds were lost.
    """
    p_values: list[float | None] = []
    for test, is_ready, look_test in zip(tests, ready, latest, strict=True):
        is_decided = look_test is not None and look_test.is_decided
        p = test.decision_p if test is not None and is_ready else None
        p_values.append(None if is_decided else 1.0 if p is None else p)
    return p_values


def is_closed(test: PairTests | None, level: float, look_test: LookTest | None, is_maximized: bool) -> bool:
    """Return whether a comparison is decided, or cannot be decided because of lost seeds."""
    if test is None or (look_test is not None and look_test.is_decided):
        return True
    is_significant = test.decision_p is not None and test.decision_p <= level
    return is_significant and is_blocked_by_lost_seeds(test, is_maximized)


def preview_first_look(
    arm_pairs: Sequence[ArmPair], metric: str, measure: MeasureConfig, resolution: float, count: int
) -> list[Difference | None]:
    """Return the comparisons before the first look: intervals of the seeds so far, and no verdict."""
    level = spend_alpha(1) / len(arm_pairs) if arm_pairs else ALPHA
    is_maximized = measure.metric_direction(metric) == "maximize"
    reason = f"the first look is after {count} seeds"
    differences: list[Difference | None] = []
    for test in run_pair_tests(arm_pairs, metric, measure, resolution):
        difference = None if test is None else replace(build_difference(test, level, is_maximized), look=0)
        if difference is not None and difference.verdict is not None:
            difference = replace(difference, verdict="not_significant", reason=reason, seeds_needed=None)
        differences.append(difference)
    return differences
