"""At which level each look tests, which comparisons it corrects for, and which seeds it uses."""

import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.stats.baseline_differences import ArmValues, paired_differences
from hqlt_lab.stats.intervals import ALPHA, estimate_mean
from hqlt_lab.stats.sequential_testing import LookSchedule, compare_at_looks, spend_alpha

LOSS, OTHER_LOSS = "test/loss", "test/other_loss"
MEASURE = MeasureConfig(select="valid/loss", direction="minimize", report=[LOSS, OTHER_LOSS])
NOISE = (0.3, -1.1, 0.9, -0.2, 1.2, -0.8, 0.5, -0.6, 0.1)


def arm(name, mean, seeds, spread=1.0):
    values = {seed: mean + spread * noise for seed, noise in enumerate(NOISE[:seeds])}
    return ArmValues(title=ArmTitle(name), values=values)


def compare(counts, *means, seeds=9, metric=LOSS, num_looks=None):
    """Compare arms of these means with a baseline whose values are all 0."""
    baseline = arm("baseline", 0.0, seeds, spread=0.0)
    pairs = [(arm(f"arm {index}", mean, seeds), baseline) for index, mean in enumerate(means)]
    return compare_at_looks(pairs, metric, MEASURE, 0.0, LookSchedule(tuple(range(len(NOISE))), counts), num_looks)


def test_a_fifth_of_alpha_is_for_each_of_four_looks_and_half_of_the_rest_for_each_later_one():
    shares = [spend_alpha(look) / ALPHA for look in range(1, 8)]
    assert shares == pytest.approx([1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 10, 1 / 20, 1 / 40])


def test_a_decided_comparison_leaves_the_correction_of_later_looks():
    large, none = compare((3, 5, 8), 60.0, 0.0).differences
    assert (large.verdict, large.look, large.n) == ("worse", 1, 3)
    assert large.confidence == pytest.approx(1 - spend_alpha(1) / 2)  # of two comparisons
    assert (none.verdict, none.look, none.n) == ("not_significant", 3, 8)
    assert none.confidence == pytest.approx(1 - spend_alpha(3))  # of one comparison


def test_seeds_needed_are_those_at_the_level_of_the_next_look():
    result = compare((5, 6, 7, 8, 9), 0.5, seeds=8)  # look 5, which has half of the level, is not taken yet
    [difference] = result.differences
    assert (difference.look, difference.verdict) == (4, "not_significant")
    estimate = estimate_mean(paired_differences(arm("", 0.5, 8).values, dict.fromkeys(range(8), 0.0)))
    expected, at_this_level = (estimate.required_seeds(spend_alpha(look), 9) for look in (5, 4))
    assert difference.seeds_needed == expected != at_this_level


def test_other_metrics_use_the_seeds_of_the_looks_that_the_primary_metric_took():
    """Seeds of an earlier, longer plan may have ended too; they were not chosen by these looks."""
    result = compare((3, 5, 8), 60.0, metric=OTHER_LOSS, num_looks=1)
    [difference] = compare((3, 5, 8), 0.0, metric=OTHER_LOSS, num_looks=1).differences
    assert result.counts == (3,) and (difference.look, difference.n) == (1, 3)
