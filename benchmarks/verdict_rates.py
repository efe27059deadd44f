"""How often verdicts are wrong: simulated studies with known differences, judged as a report does.

    python benchmarks/verdict_rates.py               false verdicts if all arms are equal, in percent of the tables
    python benchmarks/verdict_rates.py --margin      false verdicts with a margin: arms that differ by it, or by nothing
    python benchmarks/verdict_rates.py --power       decided comparisons and seeds per arm if the arms differ

Every row is one distribution over seeds, every column a number of arms (with the baseline) and of seeds. With looks,
seeds are added until a comparison is decided. The tests in `tests/report/test_verdict_rates.py` repeat some of these
simulations with fewer tables.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.stats.baseline_differences import ArmValues, compare_family
from hqlt_lab.stats.sequential_testing import LookSchedule, compare_at_looks

METRIC = "test/accuracy"
RESOLUTION = 200 / 64  # of a test of 64 examples
LOOKS = (5, 8, 12, 20)
Shape = tuple[int, int]  # arms, seeds


def draw_normal(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    return generator.normal(50, 10, shape)


def draw_rounded(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw accuracies over 64 examples with a spread of two steps, so that ties are common."""
    return np.round(generator.normal(50, 3, shape) * 0.64) / 0.64


def draw_bounded(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw accuracies that are skewed toward 100."""
    return 100 * generator.beta(5, 0.5, shape)


def draw_heavy_tailed(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw from a t-distribution with 2 degrees of freedom, whose variance is infinite."""
    return 50 + generator.standard_t(2, shape)


def draw_unequal_variances(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw normal values whose spread is 1 in the baseline, and 0.3 or 3 in the other arms."""
    spreads = np.array([1.0, 3.0, 0.3])[np.arange(shape[0]) % 3]
    return 50 + generator.normal(0, 1, shape) * spreads[:, None]


def draw_even_odds(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw 100 or 0 with equal probability."""
    return 100.0 * (generator.random(shape) < 0.5)


def draw_often_solved(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw about 98 with probability 0.8, otherwise about 3."""
    return np.where(generator.random(shape) < 0.8, generator.normal(98, 0.5, shape), generator.normal(3, 1, shape))


def draw_three_groups(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw about 0, 50 or 100 with equal probability: a task that is solved, solved in part, or not."""
    return generator.choice([0.0, 50.0, 100.0], shape) + generator.normal(0, 1, shape)


def draw_hard_seeds(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw 100 or 0; a seed is hard for all arms or for none, except for one arm in five."""
    hard = generator.random((1, shape[1])) < 0.5
    return 100.0 * (hard ^ (generator.random(shape) < 0.2))


NULL_DRAWS = {
    "normal": draw_normal,
    "rounded to 1.6 points": draw_rounded,
    "bounded, skewed": draw_bounded,
    "heavy tails": draw_heavy_tailed,
    "unequal variances": draw_unequal_variances,
    "solved or not, 50 %": draw_even_odds,
    "solved or not, 80 %": draw_often_solved,
    "three groups": draw_three_groups,
    "seeds that are hard for all": draw_hard_seeds,
}


class TableResult(NamedTuple):
    """Verdicts of one table, and the number of seeds of each arm that is compared."""

    verdicts: list[str]
    seeds: list[int]


def judge_table(
    values: np.ndarray, looks: Sequence[int] = (), margin: float = 0.0, solved: float | None = None
) -> TableResult:
    """Compare every arm with the first one, as a report does; values [arms, seeds].

    With `looks`, an arm has the seeds of the look at which it was decided.
    """
    measure = MeasureConfig(select="valid/accuracy", report=[METRIC], margin=margin, solved=solved)
    arms = [
        ArmValues(title=ArmTitle(str(index)), values=dict(enumerate(row))) for index, row in enumerate(values.tolist())
    ]
    pairs = [(arm, arms[0]) for arm in arms[1:]]
    if not looks:
        differences = compare_family(pairs, METRIC, measure, RESOLUTION)
        counts = [values.shape[1]] * len(pairs)
    else:
        schedule = LookSchedule(tuple(range(values.shape[1])), tuple(looks))
        result = compare_at_looks(pairs, METRIC, measure, RESOLUTION, schedule)
        differences, counts = result.differences, [looks[end - 1] if end else looks[-1] for end in result.end_looks]
    return TableResult([str(difference and difference.verdict) for difference in differences], counts)


def false_verdict_rate(
    draw: Callable[[np.random.Generator, Shape], np.ndarray], arms: int, seeds: int, tables: int, sequential: bool
) -> float:
    """Return the fraction of tables with any verdict, if all arms are equal."""
    generator = np.random.default_rng([arms, seeds, tables])
    looks = LOOKS if sequential else ()
    results = (judge_table(draw(generator, (arms, seeds)), looks) for _ in range(tables))
    return float(np.mean([any(verdict != "not_significant" for verdict in result.verdicts) for result in results]))


def offset_arms(generator: np.random.Generator, shape: Shape, offsets: Sequence[float]) -> np.ndarray:
    """Draw normal values with a spread of 1; arms differ from the baseline by these offsets in turn."""
    shifts = np.array([0.0, *(offsets[index % len(offsets)] for index in range(shape[0] - 1))])
    return 50 + shifts[:, None] + generator.normal(0, 1, shape)


def rarely_failing_arms(generator: np.random.Generator, shape: Shape) -> np.ndarray:
    """Draw a baseline that always solves the task, and arms that solve it with probability 0.8."""
    odds = np.array([1.0, *[0.8] * (shape[0] - 1)])[:, None]
    return np.where(generator.random(shape) < odds, generator.normal(99, 0.2, shape), 0.0)


class MarginCase(NamedTuple):
    """A distribution with a margin, and which verdicts are false for each arm but the baseline, in turn."""

    draw: Callable[[np.random.Generator, Shape], np.ndarray]
    margin: float
    solved: float | None
    false_verdicts: Sequence[Sequence[str]]


DIFFERENT, NOT_BETTER, NOT_WORSE = ("better", "worse"), ("better", "equivalent"), ("worse", "equivalent")
MARGIN_CASES = {
    "equal, margin 1 s": MarginCase(partial(offset_arms, offsets=(0,)), 1, None, [DIFFERENT]),
    "equal, margin 3 s": MarginCase(partial(offset_arms, offsets=(0,)), 3, None, [DIFFERENT]),
    "differ by the margin, 3 s": MarginCase(partial(offset_arms, offsets=(3, -3)), 3, None, [NOT_WORSE, NOT_BETTER]),
    "some equal, some differ by 3 s": MarginCase(
        partial(offset_arms, offsets=(0, 3, -3)), 3, None, [DIFFERENT, NOT_WORSE, NOT_BETTER]
    ),
    "solved by 80 and 100 %, margin 20": MarginCase(rarely_failing_arms, 20, 90, [("better", "equivalent")]),
}


def false_margin_rate(case: MarginCase, arms: int, seeds: int, tables: int, sequential: bool) -> float:
    """Return the fraction of tables with any false verdict, among them "equivalent"."""
    generator = np.random.default_rng([arms, seeds, tables])
    looks, count = LOOKS if sequential else (), 0
    for _ in range(tables):
        result = judge_table(case.draw(generator, (arms, seeds)), looks, case.margin, case.solved)
        false_verdicts = [case.false_verdicts[index % len(case.false_verdicts)] for index in range(arms - 1)]
        count += any(verdict in wrong for verdict, wrong in zip(result.verdicts, false_verdicts, strict=True))
    return count / tables


def decided_rate(difference: float, arms: int, tables: int) -> tuple[float, float]:
    """Return the fraction of decided comparisons and the mean number of seeds, with looks."""
    generator = np.random.default_rng(arms)
    draw = partial(offset_arms, offsets=(difference,))
    results = [judge_table(draw(generator, (arms, LOOKS[-1])), LOOKS) for _ in range(tables)]
    decided = np.mean([[verdict != "not_significant" for verdict in result.verdicts] for result in results])
    return float(decided), float(np.mean([result.seeds for result in results]))


def print_rates(function: Callable[..., float], cases: dict[str, Any], arms: Sequence[int], tables: int) -> None:
    """Print a table of rates in percent: a row per case, a column per number of arms and seeds."""
    designs = [(seeds, False) for seeds in (3, 5, 10)] + [(LOOKS[-1], True)]
    headings = [f"{count} arms, {'looks' if looks else seeds}" for seeds, looks in designs for count in arms]
    print(f"| in % of {tables} tables | {' | '.join(headings)} |\n|---|{'---:|' * len(headings)}")
    with ProcessPoolExecutor() as pool:
        jobs = {
            name: [
                pool.submit(function, case, count, seeds, tables, looks) for seeds, looks in designs for count in arms
            ]
            for name, case in cases.items()
        }
        for name, rates in jobs.items():
            print(f"| {name} | {' | '.join(f'{100 * rate.result():.1f}' for rate in rates)} |", flush=True)
    print(f"Standard error at 5 %: {100 * math.sqrt(0.05 * 0.95 / tables):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--arms", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--margin", action="store_true")
    parser.add_argument("--power", action="store_true")
    options = parser.parse_args()
    if options.power:
        print("| difference in s | arms | decided, % | seeds per arm |\n|---:|---:|---:|---:|")
        for difference in (1.0, 1.5, 2.0, 3.0, 5.0):
            for arms in options.arms:
                decided, seeds = decided_rate(difference, arms, options.tables)
                print(f"| {difference:g} | {arms} | {100 * decided:.0f} | {seeds:.1f} |", flush=True)
    elif options.margin:
        print_rates(false_margin_rate, MARGIN_CASES, options.arms, options.tables)
    else:
        print_rates(false_verdict_rate, NULL_DRAWS, options.arms, options.tables)


if __name__ == "__main__":
    main()
