"""Simulates grids without effects: how often a table of effects holds a false one, and whether a clear one is found.

The nominal rate of tables with any false effect is 5 %. Values that are solved or not are the hard case: three seeds in
one group by chance have a spread of 0.
"""

import numpy as np
import pytest

from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.build_tables import build_effects_table
from hqlt_lab.report.stats.factorial_effects import estimate_effects
from hqlt_lab.stats.proportion_intervals import PercentRange
from hqlt_lab.study.ledger.cell_record import CellRecord

METRIC = "test/normalized_accuracy"
MIXERS = "cross: {model.mixer: [sum, scalar]}\n"
ARMS = {
    2: "arms: {delta: {}, linear: {model.update_rule: linear_attention}}\n",
    3: "arms: {delta: {}, linear: {model.update_rule: linear_attention}, retention: {model.update_rule: retention}}\n",
}
TABLES = 300


def draw_normal(generator, shape):
    return generator.normal(50, 10, shape)


def draw_two_valued(generator, shape):
    return 100.0 * (generator.random(shape) < 0.5)


def draw_bimodal(generator, shape):
    return np.where(generator.random(shape) < 0.5, generator.normal(98, 0.5, shape), generator.normal(3, 1, shape))


def draw_mostly_solved(generator, shape):
    return 100.0 * (generator.random(shape) < 0.8)


def draw_by_arm_and_seed(generator, shape):
    """Draw 100 or 0 once for each arm and seed: both mixers of an arm solve the task with the same seeds."""
    arms, seeds = shape[0] // 2, shape[1]
    return np.repeat(100.0 * (generator.random((arms, seeds)) < 0.5), 2, axis=0)


def compute_effects(experiment, values):
    """Return the effects of a grid; values [arms, seeds]."""
    rows = []
    for arm, seeds in zip(experiment.arms, values, strict=True):
        records = [
            CellRecord(
                key=f"{arm.title}-{seed}", arm=arm.title, seed=seed, state="done", metrics={METRIC: float(value)}
            )
            for seed, value in enumerate(seeds)
        ]
        rows.append(Row(title=arm.title, records=records, percent_ranges={METRIC: PercentRange(0.0)}))
    return estimate_effects(experiment, rows)


@pytest.mark.parametrize(
    "draw, arms, seeds, nominal",
    [
        (draw_normal, 3, 3, 0.05),
        (draw_two_valued, 2, 3, 0.02),
        (draw_two_valued, 3, 3, 0.02),
        (draw_two_valued, 2, 5, 0.05),
        (draw_bimodal, 3, 3, 0.02),
        (draw_mostly_solved, 3, 3, 0.02),
        (draw_by_arm_and_seed, 2, 3, 0.05),
    ],
)
def test_a_table_without_effects_rarely_holds_a_false_one(make_experiment, draw, arms, seeds, nominal):
    """By t-tests alone, with 5 % for each family, 8.5 % (2x2) to 12.6 % (3x2) of the two-valued tables hold one."""
    experiment, generator = make_experiment(f"seeds: {seeds}\n{MIXERS}", arms=ARMS[arms]), np.random.default_rng(0)
    num_false = 0
    for _ in range(TABLES):
        effects = compute_effects(experiment, draw(generator, (2 * arms, seeds)))
        num_false += any(effect.excludes_zero for effect in effects)
        assert all(effect.low >= -100 and effect.high <= 100 for effect in effects if len(effect.levels) == 1)
        assert all(effect.low >= -200 and effect.high <= 200 for effect in effects)
    assert num_false / TABLES <= nominal + 3 * np.sqrt(nominal * (1 - nominal) / TABLES), num_false / TABLES


def test_a_clear_main_effect_is_found_with_three_seeds(make_experiment):
    experiment, generator = make_experiment(f"seeds: 3\n{MIXERS}", arms=ARMS[2]), np.random.default_rng(0)
    for _ in range(20):
        values = np.repeat([[3.0], [98.0]], 2, axis=0) + generator.normal(0, 1, (4, 3))
        assert compute_effects(experiment, values)[0].excludes_zero


def test_an_effect_on_how_often_the_task_is_solved_is_found_with_enough_seeds(make_experiment):
    experiment = make_experiment(f"seeds: 6\n{MIXERS}", arms=ARMS[2])
    solved = np.array([[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0], [1] * 6, [1] * 6])
    arm, mixer, interaction = compute_effects(experiment, 100.0 * solved)
    assert arm.excludes_zero and arm.two_groups < 0.0125
    assert not mixer.excludes_zero and not interaction.excludes_zero


def test_the_table_says_why_an_interval_without_zero_is_not_enough(make_experiment):
    experiment = make_experiment(f"seeds: 3\n{MIXERS}", arms=ARMS[2])
    # every seed has the same main effect of the arm, and one of two mixers is solved by chance
    solved = np.array([[0, 1, 0], [1, 0, 1], [1, 1, 1], [1, 1, 1]])
    table = build_effects_table(compute_effects(experiment, 100.0 * solved), METRIC)
    assert [row[-1] for row in table.rows] == ["no (values form two groups)", "no", "no"]
    # without seeds in both groups, the t-interval decides
    table = build_effects_table(compute_effects(experiment, 100.0 * np.array([[0] * 3] * 2 + [[1] * 3] * 2)), METRIC)
    assert [row[-1] for row in table.rows] == ["yes", "no", "no"]
