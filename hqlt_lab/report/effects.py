"""What each factor of a grid does by itself, and together with each other one.

Factors are the arms and the crossed axes; y is the value of a seed in one cell of the grid, and a bar is the mean over
all other factors.  Each contrast is taken within a seed, then over seeds (`intervals`):

    main effect of a          y(a) - y(a0)                                         bars over the rest
    interaction of a and b    (y(a, b) - y(a0, b)) - (y(a, b0) - y(a0, b0))        0: the one does not change the other

a0 and b0 are the first levels.  Only seeds that finished in every cell of the grid count.  Main effects are corrected
together by Holm's method, and so are interactions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean

from hqlt_lab.experiment.change import label
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.intervals import estimate, holm, step_of
from hqlt_lab.report.rows import Row, reported, step_in

Corner = tuple[int, ...]  # which level of each factor
Grid = Mapping[Corner, float]  # the values of one seed
MOST = 500  # contrasts; whoever crosses more asks something else


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One level of a factor against its first level, or how two such effects depend on each other."""

    levels: tuple[str, ...]  # ("mixer=sum",) is a main effect, ("arm=delta", "mixer=sum") an interaction
    against: tuple[str, ...]  # the first level of each factor
    n: int  # seeds
    mean: float
    low: float | None = None  # Holm-corrected interval over seeds
    high: float | None = None
    confidence: float = 0.95
    p: float | None = None


def effects_of(experiment: Experiment, rows: Sequence[Row]) -> list[Effect]:
    """Of the first reported metric, main effects first; nothing where the arms are no grid of two factors or more."""
    factors = factors_of(experiment)
    grids = grids_of(experiment, rows, factors) if len(factors) > 1 else []
    if not grids or math.prod(map(len, factors)) > MOST:
        return []
    values = (value for grid in grids for value in grid.values())
    step = step_of(reported(experiment.measure)[0], step_in(experiment), values)
    mains = [((place, level),) for place, levels in enumerate(factors) for level in range(1, len(levels))]
    pairs = [(a, b) for (a,), (b,) in combinations(mains, 2) if a[0] != b[0]]
    return [*family(mains, grids, factors, step), *family(pairs, grids, factors, step)]


def factors_of(experiment: Experiment) -> list[list[str]]:
    """The levels of each factor that has several: [["arm=delta", "arm=linear"], ["mixer=sum", "mixer=vector"]]."""
    columns = [words_of(experiment, place) for place in range(len(experiment.arms))]
    if len({len(column) for column in columns}) > 1:
        return []  # single changes are no grid
    levels = [list(dict.fromkeys(column)) for column in zip(*columns, strict=True)]
    return [column for column in levels if len(column) > 1]


def words_of(experiment: Experiment, place: int) -> list[str]:
    """An arm by its name and levels."""
    arm = experiment.arms[place]
    return [f"arm={arm.name}", *(label(path, value, arm.levels) for path, value in arm.levels.items())]


def grids_of(experiment: Experiment, rows: Sequence[Row], factors: Sequence[Sequence[str]]) -> list[Grid]:
    """The whole grid of every seed that finished all of it."""
    metric = reported(experiment.measure)[0]
    found: dict[int, dict[Corner, float]] = {}
    for place, row in enumerate(rows[: len(experiment.arms)]):
        words = words_of(experiment, place)
        corner = tuple(next(levels.index(word) for word in words if word in levels) for levels in factors)
        for seed, value in row.by_seed(metric).items():
            found.setdefault(seed, {})[corner] = value
    size = math.prod(map(len, factors))
    return [grid for grid in found.values() if len(grid) == size]


def family(
    asked: Sequence[tuple[tuple[int, int], ...]], grids: Sequence[Grid], factors: Sequence[Sequence[str]], step: float
) -> list[Effect]:
    """Contrasts that are read together."""
    found = [estimate([contrast(grid, one, factors) for grid in grids], step * rounding(one, factors)) for one in asked]
    made = []
    for one, said, level in zip(asked, found, holm([said.p for said in found]), strict=True):
        low, high = said.interval(level) or (None, None)
        made.append(
            Effect(
                levels=tuple(factors[place][choice] for place, choice in one),
                against=tuple(factors[place][0] for place, _ in one),
                n=said.n,
                mean=said.mean,
                low=low,
                high=high,
                confidence=1 - level,
                p=said.p,
            )
        )
    return made


def rounding(one: Sequence[tuple[int, int]], factors: Sequence[Sequence[str]]) -> float:
    """How much of a difference of two rounded numbers is left in a contrast of so many bars, each a mean."""
    averaged = math.prod(len(levels) for place, levels in enumerate(factors) if place not in dict(one))
    return math.sqrt(2 ** (len(one) - 1) / averaged)


def contrast(grid: Grid, one: Sequence[tuple[int, int]], factors: Sequence[Sequence[str]]) -> float:
    """Of one seed: every choice of asked or first levels, with the sign of how many are first ones."""
    signed = []
    for taken in product((True, False), repeat=len(one)):
        fixed = {place: choice if take else 0 for (place, choice), take in zip(one, taken, strict=True)}
        signed.append((-1) ** taken.count(False) * bar(grid, fixed, factors))
    return sum(signed)


def bar(grid: Grid, fixed: Mapping[int, int], factors: Sequence[Sequence[str]]) -> float:
    """The mean over all factors that are not fixed."""
    free = [[fixed[place]] if place in fixed else range(len(levels)) for place, levels in enumerate(factors)]
    return fmean(grid[corner] for corner in product(*free))
