"""The note on arms that were made equally large."""

import pytest

from hqlt_lab.experiment.matched import matched
from hqlt_lab.report.report import Report

BASE = """
question: Which mixer counts?
task: {name: parity, train_length: [3, 20], test_length: [3, 20]}
model: {width: 32, heads: 2, layers: 1, mlp_width: 64, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""


@pytest.fixture
def note(asked):
    def told(more):
        experiment = asked(more, "arms: {vector: {}, sum: {model.mixer: sum}}\n", BASE)
        lines = Report.make(experiment, []).markdown().splitlines()
        return experiment, [line for line in lines if "matched" in line]

    return told


def test_a_note_says_what_was_matched_to_whom_and_how_far_off_it_is(note):
    experiment, lines = note("match: parameters\n")
    residual = 100 * matched(experiment, experiment.arms[1], {}).residual
    sentence = f"Arms are matched on parameters to 'vector' by mlp_width: largest residual {residual:+.1f} %."
    assert len(lines) == 1 and sentence in lines[0]


def test_several_references_are_told_together_and_no_match_is_no_note(note):
    _, lines = note("match: parameters\ncross: {model.width: [32, 64]}\n")
    assert "on parameters to the first arm with the same crossed sizes by mlp_width" in lines[0]
    assert note("seeds: 1\n")[1] == []
