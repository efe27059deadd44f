"""Main effects and two-way interactions of the factors of a grid.

Factors are the arms and the crossed axes; y is the value of one seed in the grid, averaged over all factors that are
not named. Each contrast is computed per seed, then averaged over seeds (`intervals`):

    main effect of a          y(a) - y(a0)
    interaction of a and b    (y(a, b) - y(a0, b)) - (y(a, b0) - y(a0, b0))        0: the effects add up

a0 and b0 are the first levels. Only seeds that finished in every cell of the grid are used; with several looks
(`stats.sequential_testing`) only those of the first, because the number of later ones depends on the results. Holm's
method corrects the main effects as one family and the interactions as another, each at ALPHA / 2, so that the
probability that the table holds any false effect is at most ALPHA. Intervals of percentages are clipped to possible
values.

An effect excludes 0 if its interval does, from MIN_SEEDS seeds on. If the values of the grid form two groups
(`bimodal_outcomes`), it also needs the permutation test of its two halves, y(a) and y(a0) of all seeds, at its level:
a few seeds in the same group by chance have a spread of 0, for which the t-test is too optimistic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean
from types import MappingProxyType

from hqlt_lab.experiment.apply_overrides import format_change
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_seeds import MIN_SEEDS
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.stats.bimodal_outcomes import find_group_threshold
from hqlt_lab.stats.exact_tests import two_sample_p_value
from hqlt_lab.stats.intervals import ALPHA, MeanEstimate, estimate_mean, holm_levels
from hqlt_lab.stats.metric_scale import accuracy_resolution, metric_resolution

LevelIndices = tuple[int, ...]  # index of the level of each factor
SeedGrid = Mapping[LevelIndices, float]  # values of one seed
Contrast = Sequence[tuple[int, int]]  # (factor, level) of a main effect, or of both effects of an interaction
MAX_GRID_CELLS = 500  # no effects are computed for larger grids


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Main effect of one level relative to the first level of its factor, or interaction of two such effects."""

    levels: tuple[str, ...]  # ("mixer=sum",) is a main effect, ("arm=delta", "mixer=sum") an interaction
    reference_levels: tuple[str, ...]  # the first level of each factor
    n: int  # number of seeds
    mean: float
    low: float | None = None  # Holm-corrected interval over seeds
    high: float | None = None
    confidence: float = 0.95
    p: float | None = None  # of the t-test, before the correction
    # p of the permutation test; None: the values form no two groups, or the t-test alone decides that 0 is not excluded
    two_groups: float | None = None

    @property
    def interval_excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def is_blocked_by_groups(self) -> bool:
        """Whether the interval excludes 0, and the permutation test of values in two groups does not reject."""
        return self.interval_excludes_zero and self.two_groups is not None and self.two_groups > 1 - self.confidence

    @property
    def excludes_zero(self) -> bool:
        """Whether the effect differs from 0, by all tests and with enough seeds."""
        return self.n >= MIN_SEEDS and self.interval_excludes_zero and not self.is_blocked_by_groups


def estimate_effects(experiment: Experiment, rows: Sequence[Row]) -> list[Effect]:
    """Estimate main effects, then interactions, of the primary metric.

    Empty unless the arms form a grid of two factors or more.
    """
    factors = grid_factors(experiment)
    grids = complete_grids(experiment, rows, factors) if len(factors) > 1 else []
    if not grids or math.prod(map(len, factors)) > MAX_GRID_CELLS:
        return []
    values = (value for grid in grids for value in grid.values())
    resolution = metric_resolution(reported_metrics(experiment.measure)[0], accuracy_resolution(experiment), values)
    span = metric_span(rows[: len(experiment.arms)], reported_metrics(experiment.measure)[0])
    mains = [((index, level),) for index, levels in enumerate(factors) for level in range(1, len(levels))]
    pairs = [(a, b) for (a,), (b,) in combinations(mains, 2) if a[0] != b[0]]
    return [effect for family in (mains, pairs) for effect in estimate_family(family, grids, factors, resolution, span)]


def metric_span(rows: Sequence[Row], metric: str) -> float:
    """Return the largest possible difference of two values of a metric; infinite unless its range is known."""
    ranges = [row.percent_ranges.get(metric) for row in rows]
    lows = [value_range.low for value_range in ranges if value_range is not None and value_range.low is not None]
    if len(lows) < len(rows):
        return math.inf
    return max(value_range.high for value_range in ranges if value_range is not None) - min(lows)


def grid_factors(experiment: Experiment) -> list[list[str]]:
    """Return the levels of each factor with more than one level.

    Example: [["arm=delta", "arm=linear"], ["mixer=sum", "mixer=vector"]].
    """
    labels_by_arm = [arm_level_labels(experiment, index) for index in range(len(experiment.arms))]
    if len({len(labels) for labels in labels_by_arm}) > 1:
        return []  # `one_at_a_time` does not span a grid
    factors = [list(dict.fromkeys(labels)) for labels in zip(*labels_by_arm, strict=True)]
    return [levels for levels in factors if len(levels) > 1]


def arm_level_labels(experiment: Experiment, arm_index: int) -> list[str]:
    """Return the labels of an arm: its name and its crossed levels."""
    arm = experiment.arms[arm_index]
    return [f"arm={arm.name}", *(format_change(path, value, arm.levels) for path, value in arm.levels.items())]


def complete_grids(experiment: Experiment, rows: Sequence[Row], factors: Sequence[Sequence[str]]) -> list[SeedGrid]:
    """Return the grid of values of every seed that finished in all cells of the grid, with looks of the first look."""
    metric = reported_metrics(experiment.measure)[0]
    seeds = experiment.final_seeds[: experiment.looks[0]] if experiment.looks else None
    grids: dict[int, dict[LevelIndices, float]] = {}
    for index, row in enumerate(rows[: len(experiment.arms)]):
        labels = arm_level_labels(experiment, index)
        level_indices = tuple(next(levels.index(label) for label in labels if label in levels) for levels in factors)
        for seed, value in row.values_by_seed(metric).items():
            if seeds is None or seed in seeds:
                grids.setdefault(seed, {})[level_indices] = value
    size = math.prod(map(len, factors))
    return [grid for grid in grids.values() if len(grid) == size]


def estimate_family(
    contrasts: Sequence[Contrast],
    grids: Sequence[SeedGrid],
    factors: Sequence[Sequence[str]],
    resolution: float,
    span: float,
) -> list[Effect]:
    """Estimate contrasts that form one family for Holm's correction; `span` is the largest difference of two values."""
    estimates = [
        estimate_mean(
            [contrast_value(grid, contrast, factors) for grid in grids],
            resolution * rounding_factor(contrast, factors),
        )
        for contrast in contrasts
    ]
    values_by_cell = [{seed: grid[cell] for seed, grid in enumerate(grids)} for cell in grids[0]]
    has_two_groups = find_group_threshold(values_by_cell) is not None
    group_p_values = [
        group_p_value(contrast, estimate, grids, factors) if has_two_groups else None
        for contrast, estimate in zip(contrasts, estimates, strict=True)
    ]
    levels = holm_levels(
        [
            None if estimate.p_value is None else max(estimate.p_value, group_p or 0.0)
            for estimate, group_p in zip(estimates, group_p_values, strict=True)
        ],
        ALPHA / 2,
    )
    effects = []
    for contrast, estimate, group_p, level in zip(contrasts, estimates, group_p_values, levels, strict=True):
        low, high = estimate.confidence_interval(level) or (None, None)
        limit = span * 2 ** (len(contrast) - 1)  # an interaction is a difference of two differences
        effects.append(
            Effect(
                levels=tuple(factors[index][choice] for index, choice in contrast),
                reference_levels=tuple(factors[index][0] for index, _ in contrast),
                n=estimate.n,
                mean=estimate.mean,
                low=None if low is None else max(low, -limit),
                high=None if high is None else min(high, limit),
                confidence=1 - level,
                p=estimate.p_value,
                two_groups=group_p,
            )
        )
    return effects


def group_p_value(
    contrast: Contrast, estimate: MeanEstimate, grids: Sequence[SeedGrid], factors: Sequence[Sequence[str]]
) -> float | None:
    """Return the p of the permutation test of a contrast; None if the t-test decides alone that 0 is not excluded.

    The samples are the values of all seeds at the level and at the first level of one factor; for an interaction they
    are effects of the other factor. The larger p of both choices is returned.
    """
    if estimate.p_value is None or estimate.p_value > ALPHA:
        return None
    p_values = []
    for index, level in contrast:
        other = [(factor, choice) for factor, choice in contrast if factor != index]
        samples = [[contrast_value(grid, other, factors, {index: choice}) for grid in grids] for choice in (level, 0)]
        p_values.append(two_sample_p_value(*samples))
    return max(p_values)


def rounding_factor(contrast: Contrast, factors: Sequence[Sequence[str]]) -> float:
    """Return the rounding error of a contrast relative to that of a difference of two rounded values.

    A contrast has 2 ** len(contrast) terms, each a mean over the other factors.
    """
    averaged = math.prod(len(levels) for index, levels in enumerate(factors) if index not in dict(contrast))
    return math.sqrt(2 ** (len(contrast) - 1) / averaged)


def contrast_value(
    grid: SeedGrid,
    contrast: Contrast,
    factors: Sequence[Sequence[str]],
    fixed_levels: Mapping[int, int] = MappingProxyType({}),
) -> float:
    """Return the contrast of one seed: a signed sum over all choices of given or first levels.

    `fixed_levels` are those of factors that are not in the contrast and not averaged over.
    """
    terms = []
    for uses_level in product((True, False), repeat=len(contrast)):
        choices = {index: choice if uses else 0 for (index, choice), uses in zip(contrast, uses_level, strict=True)}
        terms.append((-1) ** uses_level.count(False) * marginal_mean(grid, {**choices, **fixed_levels}, factors))
    return sum(terms)


def marginal_mean(grid: SeedGrid, fixed_levels: Mapping[int, int], factors: Sequence[Sequence[str]]) -> float:
    """Return the mean over all factors that are not fixed."""
    choices = [
        [fixed_levels[index]] if index in fixed_levels else range(len(levels)) for index, levels in enumerate(factors)
    ]
    return fmean(grid[level_indices] for level_indices in product(*choices))
