"""Metrics are maximized or minimized according to their names."""

import pytest

from hqlt_lab.experiment.run_settings import MeasureConfig
from tests.issues import raises_issue


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("test/loss", "minimize"), ("test/normalized_accuracy", "maximize"), ("test/accuracy/length_40_80", "maximize")],
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_losses_are_minimized_and_accuracies_maximized_whatever_the_selection_metric(metric, expected, direction):
    assert MeasureConfig(select="valid/reward", direction=direction).metric_direction(metric) == expected
    assert MeasureConfig(select="valid/reward", direction=direction).metric_direction("test/reward") == direction


@pytest.mark.parametrize("metric", ["valid/loss", "valid/perplexity", "valid/normalized_accuracy"])
def test_direction_that_contradicts_the_selection_metric_is_an_error(metric):
    right = MeasureConfig(select="valid/reward").metric_direction(metric)
    wrong = "minimize" if right == "maximize" else "maximize"
    assert MeasureConfig(select=metric, direction=right).direction == right
    with raises_issue("direction", "wrong_direction") as error:
        MeasureConfig(select=metric, direction=wrong)
    assert right in error.value.issues[0].hint


def test_error_metrics_of_lm_eval_are_minimized():
    assert (
        MeasureConfig().metric_direction("eval/task/brier_score")
        == "minimize"
        != MeasureConfig().metric_direction("eval/piqa/acc")
    )
