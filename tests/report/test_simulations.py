"""Simulates studies with known differences: how often a verdict is wrong, and whether a clear one is found.

The nominal rate of a false "better" is 2.5 % for one comparison; that of any false verdict in a table is 5 %.
"""

import numpy as np
import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.stats.baseline_differences import ArmValues, compare_family

METRIC = "test/accuracy"
SEEDS = (2, 3, 5, 10)
STUDIES = 800


def compute_verdicts(values, solved=None, margin=0.0):
    """Return the verdict of every other arm against the first one; values [arms, seeds]."""
    measure = MeasureConfig(select="valid/accuracy", report=[METRIC], solved=solved, margin=margin)
    arms = [
        ArmValues(title=ArmTitle(str(arm)), values={seed: float(value) for seed, value in enumerate(seeds)})
        for arm, seeds in enumerate(values)
    ]
    differences = compare_family([(arm, arms[0]) for arm in arms[1:]], METRIC, measure, resolution=200 / 64)
    return [difference.verdict for difference in differences]


def simulate_rates(draw, arms, n, solved=None, studies=None):
    """Return how often the second arm is called better, and how often any arm has a verdict."""
    generator = np.random.default_rng(n)
    verdicts_by_study = [compute_verdicts(draw(generator, (arms, n)), solved) for _ in range(studies or STUDIES)]
    better = np.mean([verdicts[0] == "better" for verdicts in verdicts_by_study])
    any_verdict = np.mean([any(verdict != "not_significant" for verdict in verdicts) for verdicts in verdicts_by_study])
    return better, any_verdict


def is_within_nominal_rate(rate, nominal, studies):
    """Return whether a simulated rate is below nominal, with a tolerance of three standard errors."""
    return rate <= nominal + 3 * np.sqrt(nominal * (1 - nominal) / studies)


def draw_normal(generator, shape):
    return generator.normal(50, 10, shape)


def draw_discrete(generator, shape):
    """Draw accuracies over 64 examples with a spread of two steps, so that ties are common."""
    return np.round(generator.normal(50, 3, shape) * 0.64) / 0.64


def draw_bimodal(generator, shape):
    """Draw values of a task that is solved with probability 1/2."""
    return np.where(generator.random(shape) < 0.5, generator.normal(98, 0.5, shape), generator.normal(3, 1, shape))


def draw_two_valued(generator, shape):
    """Draw 100 or 0 with equal probability: a task that is solved or not."""
    return 100.0 * (generator.random(shape) < 0.5)


def draw_bounded(generator, shape):
    """Draw accuracies that are skewed toward 100."""
    return 100 * generator.beta(5, 0.5, shape)


@pytest.mark.parametrize("n", (2, 3, 5))
@pytest.mark.parametrize("draw, nominal", [(draw_bounded, 0.05), (draw_two_valued, 0.01), (draw_bimodal, 0.01)])
def test_a_table_of_four_equal_arms_rarely_holds_a_false_verdict(draw, nominal, n):
    """With t-tests alone 28 % of the two-valued tables hold one with 2 seeds, 8 % with 3; `solved` is not set."""
    _, any_verdict = simulate_rates(draw, 4, n, studies=250)
    assert is_within_nominal_rate(any_verdict, nominal, 250), any_verdict


@pytest.mark.parametrize("n", SEEDS)
@pytest.mark.parametrize("draw", [draw_normal, draw_discrete])
def test_equal_arms_are_rarely_called_different(draw, n):
    better, _ = simulate_rates(draw, 2, n)
    assert is_within_nominal_rate(better, 0.025, STUDIES), better


@pytest.mark.parametrize("n", SEEDS)
def test_any_of_four_equal_arms_is_rarely_called_different(n):
    _, any_verdict = simulate_rates(draw_normal, 5, n)
    assert is_within_nominal_rate(any_verdict, 0.05, STUDIES), any_verdict


@pytest.mark.parametrize("n", SEEDS)
def test_an_arm_with_an_equal_chance_to_solve_the_task_is_rarely_called_better(n):
    better, _ = simulate_rates(draw_bimodal, 2, n, solved=90)
    assert is_within_nominal_rate(better, 0.025, STUDIES), better


def draw_close(generator, shape):
    return generator.normal(50, 1, shape)


def draw_rarely_failing(generator, shape):
    """Draw values of a baseline that always solves the task, and of arms that solve it with probability 0.8."""
    solved = generator.random(shape) < np.array([1.0, *[0.8] * (shape[0] - 1)])[:, None]
    return np.where(solved, generator.normal(99, 0.2, shape), 0.0)


@pytest.mark.parametrize(
    "draw, offsets, margin, solved, n",
    [
        (draw_close, (0, 3), 3, None, 5),
        (draw_close, (0, 3, 0), 3, None, 5),
        (draw_close, (0, 3, -3, 0), 3, None, 3),
        (draw_bounded, (0, 0), 20, None, 5),
        (draw_rarely_failing, (0, 0), 20, 90, 5),
        (draw_rarely_failing, (0, 0, 0), 20, 90, 20),
    ],
)
def test_arms_that_differ_by_the_margin_are_rarely_called_equivalent(draw, offsets, margin, solved, n):
    """By the t-test alone 33 % of the arms that fail with one seed in five are equivalent with 5 seeds."""
    generator, studies = np.random.default_rng(n), 250
    is_wrong = []
    for _ in range(studies):
        values = draw(generator, (len(offsets), n)) + np.array(offsets)[:, None]
        if draw is draw_bounded:  # another distribution with the same mean minus the margin
            values[0] = generator.normal(90.9 - margin, 1, n)
        verdicts = compute_verdicts(values, solved, margin)
        false_verdicts = {0: ("better", "worse"), margin: ("worse", "equivalent"), -margin: ("better", "equivalent")}
        if draw in (draw_bounded, draw_rarely_failing):
            is_wrong.append("equivalent" in verdicts)
        else:
            is_wrong.append(any(v in false_verdicts[offset] for v, offset in zip(verdicts, offsets[1:], strict=True)))
    assert is_within_nominal_rate(np.mean(is_wrong), 0.05, studies), np.mean(is_wrong)


def test_equal_arms_are_equivalent_within_a_margin_of_four_standard_deviations():
    generator = np.random.default_rng(0)
    verdicts = [compute_verdicts(draw_close(generator, (2, 5)), margin=4)[0] for _ in range(100)]
    assert verdicts.count("equivalent") > 80


def test_98_against_3_is_called_better_with_three_seeds():
    generator = np.random.default_rng(0)
    for _ in range(200):
        values = [generator.normal(3, 1, 3), generator.normal(98, 1, 3), generator.normal(98, 1, 3)]
        assert compute_verdicts(values, solved=90) == ["better", "better"]
