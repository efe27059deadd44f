"""Which way a metric is better."""

import pytest

from hqlt_lab.experiment.settings import MeasureConfig


@pytest.mark.parametrize(
    ("metric", "way"),
    [("test/loss", "minimize"), ("test/normalised_accuracy", "maximize"), ("test/accuracy/length_40_80", "maximize")],
)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_losses_are_small_and_accuracies_large_whatever_is_selected_on(metric, way, direction):
    assert MeasureConfig(select="valid/reward", direction=direction).way(metric) == way
    assert MeasureConfig(select="valid/reward", direction=direction).way("test/reward") == direction
