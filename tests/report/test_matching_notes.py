"""The note on arms matched in size."""

import pytest

from hqlt_lab.experiment.size_matching import match_arm
from hqlt_lab.report.study_report import Report

BASE = """
question: Which mixer counts?
task: {name: parity, train_length: [3, 20], test_length: [20, 20]}
model: {width: 32, heads: 2, layers: 1, mlp_width: 64, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""


@pytest.fixture
def build_notes(make_experiment):
    def build(extra):
        experiment = make_experiment(extra, "arms: {vector: {}, sum: {model.mixer: sum}}\n", BASE)
        lines = Report.from_records(experiment, []).to_markdown().splitlines()
        return experiment, [line for line in lines if "matched" in line]

    return build


def test_note_names_the_matched_quantity_the_reference_and_the_residual(build_notes):
    experiment, lines = build_notes("match: parameters\n")
    residual = 100 * match_arm(experiment, experiment.arms[1], {}).residual
    sentence = f"Arms are matched on parameters to 'vector' by mlp_width: largest residual {residual:+.1f} %."
    assert len(lines) == 1 and sentence in lines[0]


def test_several_references_share_one_note_and_without_matching_there_is_none(build_notes):
    _, lines = build_notes("match: parameters\ncross: {model.width: [32, 64]}\n")
    assert "on parameters to the first arm with the same crossed sizes by mlp_width" in lines[0]
    assert build_notes("seeds: 1\n")[1] == []
