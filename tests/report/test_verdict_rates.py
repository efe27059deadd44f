"""Simulated studies with known differences: how often a verdict is wrong, with few tables of each simulation."""

import numpy as np
import pytest

from benchmarks.verdict_rates import (
    LOOKS,
    MARGIN_CASES,
    NULL_DRAWS,
    decided_rate,
    false_margin_rate,
    false_verdict_rate,
    judge_table,
    offset_arms,
)
from hqlt_lab.stats.intervals import ALPHA
from hqlt_lab.stats.sequential_testing import spend_alpha

TABLES = 200


def is_at_most(rate, nominal):
    """Return whether a simulated rate is at most nominal, with a tolerance of three standard errors."""
    return rate <= nominal + 3 * np.sqrt(nominal * (1 - nominal) / TABLES)


@pytest.mark.parametrize("seeds, has_looks", [(3, False), (5, False), (LOOKS[-1], True)])
@pytest.mark.parametrize("name", NULL_DRAWS)
def test_a_table_of_equal_arms_rarely_holds_a_false_verdict(name, seeds, has_looks):
    """Testing each look of normal values at 5 % gives 12 % of tables with a false verdict."""
    rate = false_verdict_rate(NULL_DRAWS[name], 4, seeds, TABLES, has_looks)
    assert is_at_most(rate, 0.05), rate


@pytest.mark.parametrize("seeds, has_looks", [(5, False), (LOOKS[-1], True)])
@pytest.mark.parametrize("name", MARGIN_CASES)
def test_a_table_with_a_margin_rarely_holds_a_false_verdict(name, seeds, has_looks):
    rate = false_margin_rate(MARGIN_CASES[name], 4, seeds, TABLES, has_looks)
    assert is_at_most(rate, 0.05), rate


def test_looks_spend_at_most_the_error_probability_however_many_there_are():
    spent = np.cumsum([spend_alpha(look) for look in range(1, 60)])
    assert np.all(spent <= ALPHA) and spent[-1] > 0.99 * ALPHA
    assert spend_alpha(1) == spend_alpha(4) > spend_alpha(5) > spend_alpha(6)


@pytest.mark.parametrize("difference, most_seeds", [(2.0, 12), (3.0, 8), (5.0, 5.5)])
def test_large_differences_are_decided_with_few_seeds(difference, most_seeds):
    decided, seeds = decided_rate(difference, 4, 50)
    assert decided > 0.95 and seeds < most_seeds


def test_equal_arms_are_equivalent_with_few_seeds_if_the_margin_is_wide():
    generator = np.random.default_rng(0)
    results = [judge_table(offset_arms(generator, (3, 20), (0,)), LOOKS, margin=4.0) for _ in range(50)]
    assert np.mean([result.verdicts == ["equivalent"] * 2 for result in results]) > 0.95
    assert np.mean([result.seeds for result in results]) < 10
