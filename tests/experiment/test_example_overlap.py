"""Test inputs that also occur in training are reported; too many of them are an error unless the arm allows it."""

import json

import pytest
from typer.testing import CliRunner

from hqlt_lab.cli.app import app
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.validate.example_overlap import check_example_overlap
from hqlt_lab.registry import build
from tests.issues import list_codes, raises_issue

FILE = """
question: Does it generalize?
task: {name: parity, train_length: [3, 12], test_length: [8, 20]}
model: {width: 8, heads: 2, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 2}}
train: {steps: 100, batch_size: 128}
seeds: 1
"""
ALLOWED = "arms: {a: {allow: [train_test_overlap]}}\n"


@pytest.fixture
def write_file(tmp_path):
    def write(more="", changes=()):
        text = FILE + more
        for old, new in changes:
            text = text.replace(old, new)
        (tmp_path / "overlap.yaml").write_text(text)
        return tmp_path / "overlap.yaml"

    return write


def test_a_test_of_which_a_third_occurs_in_training_is_refused(write_file):
    with raises_issue("task.test_length", "train_test_overlap") as error:
        load_experiment(write_file())
    (issue,) = error.value.issues
    assert issue.line == 3


def test_an_allowed_overlap_is_a_warning_in_plan_and_report(write_file, tmp_path):
    file = write_file(ALLOWED)
    assert len(load_experiment(file).warnings) == 1
    plan = CliRunner().invoke(app, ["plan", str(file), "--runs", str(tmp_path / "runs")], env={"COLUMNS": "300"})
    assert plan.exit_code == 0 and "31 %" in plan.output
    report = CliRunner().invoke(app, ["report", str(file), "--runs", str(tmp_path / "runs"), "--json"])
    assert [warning for warning in json.loads(report.stdout)["warnings"] if "31 %" in warning]


@pytest.mark.parametrize(
    ("changes", "num_issues", "num_warnings"),
    [
        ([("[8, 20]", "[13, 20]")], 0, 0),  # no common sizes
        ([("[8, 20]", "[12, 40]"), ("steps: 100", "steps: 200")], 0, 1),  # 2 % of the test
        ([("[8, 20]", "[12, 40]"), ("steps: 100", "steps: 1")], 0, 0),
        ([("[8, 20]", "[13, 20], valid_length: [8, 12]")], 1, 0),
    ],
)
def test_sizes_and_training_examples_decide(write_file, changes, num_issues, num_warnings):
    allowed = load_experiment(write_file(ALLOWED, changes))
    cell = allowed.make_cell(allowed.arms[0], {}, 0)
    issues, warnings = check_example_overlap(build("task", cell.task), cell, ())
    assert (len(issues), len(warnings)) == (num_issues, num_warnings)


def test_the_overlap_of_each_arm_follows_from_its_own_training_examples(write_file):
    arms = "arms: {{short: {{train.steps: 1{}}}, long: {{train.steps: 1000{}}}}}\n"
    allow = ", allow: [train_test_overlap]"
    assert len(load_experiment(write_file(arms.format("", allow))).warnings) == 2  # 2 % and 38 %
    with pytest.raises(ConfigError):
        load_experiment(write_file(arms.format(allow, "")))


def test_invalid_training_settings_do_not_give_an_overlap(write_file):
    changes = [("steps: 100", "steps: 1"), ("[8, 20]", "[12, 20]"), ("batch_size: 128", "batch_siz: 128")]
    with pytest.raises(ConfigError) as error:
        load_experiment(write_file(changes=changes))
    assert list_codes(error.value) == [("train.batch_siz", "unknown_setting")]
