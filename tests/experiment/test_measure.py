"""Which way a metric is better."""

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.settings import MeasureConfig


@pytest.mark.parametrize(
    ("metric", "way"),
    [("test/loss", "minimize"), ("test/normalised_accuracy", "maximize"), ("test/accuracy/length_40_80", "maximize")],
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_losses_are_small_and_accuracies_large_whatever_is_selected_on(metric, way, direction):
    assert MeasureConfig(select="valid/reward", direction=direction).way(metric) == way
    assert MeasureConfig(select="valid/reward", direction=direction).way("test/reward") == direction


@pytest.mark.parametrize("metric", ["valid/loss", "valid/perplexity", "valid/normalised_accuracy"])
def test_what_is_selected_by_is_not_selected_the_wrong_way(metric):
    right = MeasureConfig(select="valid/reward").way(metric)
    wrong = "minimize" if right == "maximize" else "maximize"
    assert MeasureConfig(select=metric, direction=right).direction == right
    with pytest.raises(ConfigError, match=f"direction: {metric} is better when it is .*Say {right}"):
        MeasureConfig(select=metric, direction=wrong)


def test_errors_are_small_by_the_names_of_lm_eval_too():
    assert MeasureConfig().way("eval/task/brier_score") == "minimize" != MeasureConfig().way("eval/piqa/acc")
