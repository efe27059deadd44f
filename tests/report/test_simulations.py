"""Thousands of studies whose truth is known: how often a verdict is wrong, and whether a clear one is found.

A false "better" is nominal at 2.5 % for one comparison, and at 5 % for any false verdict in a table.
"""

import numpy as np
import pytest

from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.differences import with_differences
from hqlt_lab.report.rows import Row, summaries
from hqlt_lab.study.record import Record

METRIC = "test/accuracy"
SEEDS = (2, 3, 5, 10)
STUDIES = {2: 800, 3: 800, 5: 800, 10: 120}  # ten seeds count out 1,024 signs each


def verdicts(values, solved=None):
    """Of every arm against the first; values [arms, seeds]."""
    measure = MeasureConfig(select="valid/accuracy", report=[METRIC], solved=solved)
    rows = []
    for arm, seeds in enumerate(values):
        records = [
            Record(key=f"{arm}-{seed}", arm=str(arm), seed=seed, state="done", metrics={METRIC: float(value)})
            for seed, value in enumerate(seeds)
        ]
        rows.append(Row(title=str(arm), records=records, summaries=summaries(records, measure)))
    compared = with_differences(rows, {row.title: "0" for row in rows[1:]}, measure, step=200 / 64)
    return [row.differences[METRIC].verdict for row in compared[1:]]


def rates(draw, arms, n, solved=None):
    """How often the first arm is called better, and how often any arm is called anything."""
    random = np.random.default_rng(n)
    found = [verdicts(draw(random, (arms, n)), solved) for _ in range(STUDIES[n])]
    better = np.mean([one[0] == "better" for one in found])
    anything = np.mean([any(verdict != "undecided" for verdict in one) for one in found])
    return better, anything


def at_most(rate, nominal, n):
    """Three standard errors of the simulation are forgiven."""
    return rate <= nominal + 3 * np.sqrt(nominal * (1 - nominal) / STUDIES[n])


def normal(random, shape):
    return random.normal(50, 10, shape)


def counted(random, shape):
    """An accuracy over 64 examples: a spread of two steps, so that ties are common."""
    return np.round(random.normal(50, 3, shape) * 0.64) / 0.64


def luck(random, shape):
    """Solved or not, in half of the cases."""
    return np.where(random.random(shape) < 0.5, random.normal(98, 0.5, shape), random.normal(3, 1, shape))


@pytest.mark.parametrize("n", SEEDS)
@pytest.mark.parametrize("draw", [normal, counted])
def test_a_difference_that_is_not_there_is_rarely_found(draw, n):
    better, _ = rates(draw, 2, n)
    assert at_most(better, 0.025, n), better


@pytest.mark.parametrize("n", SEEDS)
def test_nor_is_any_of_four_in_one_table(n):
    _, anything = rates(normal, 5, n)
    assert at_most(anything, 0.05, n), anything


@pytest.mark.parametrize("n", SEEDS)
def test_luck_is_not_skill_where_a_task_is_solved_or_not(n):
    better, _ = rates(luck, 2, n, solved=90)
    assert at_most(better, 0.025, n), better


def test_98_against_3_is_found_with_three_seeds():
    random = np.random.default_rng(0)
    for _ in range(200):
        values = [random.normal(3, 1, 3), random.normal(98, 1, 3), random.normal(98, 1, 3)]
        assert verdicts(values, solved=90) == ["better", "better"]
