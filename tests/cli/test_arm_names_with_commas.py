"""An arm whose name has a comma is planned, trained, selected and reported by its whole name."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.next_command import NextCommand
from hqlt_lab.report.wording.caveats import describe_changed_code
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.study_snapshot import experiment_from_snapshot, load_snapshot

STUDY = """
question: Which arm?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}}
train: {steps: 2, batch_size: 4}
trainer: {accelerator: cpu}
launcher: {workers: 1, threads: 1}
arms: {"a, b": {}, c: {model.update_rule: linear_attention}}
cross: {model.mixer: [sum, vector]}
seeds: 1
"""


def run_command(*arguments):
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """The working directory, in which the study was run."""
    folder, original_folder = tmp_path_factory.mktemp("commas"), os.getcwd()
    os.chdir(folder)
    (folder / "study.yaml").write_text(STUDY)
    run_command("run", "study.yaml", "--tracking", "none")
    yield folder
    os.chdir(original_folder)


@pytest.mark.parametrize("command", ["plan", "status"])
def test_cells_of_the_arm_are_selected_by_a_quoted_name(study_folder, command):
    cells = json.loads(run_command(command, "study.yaml", "--only", 'arm="a, b"', "--json"))
    cells = cells["cells"] if isinstance(cells, dict) else cells
    assert [cell["arm"] for cell in cells] == ["a, b, mixer=sum", "a, b, mixer=vector"]


def test_answer_names_the_whole_arm(study_folder):
    answer = str(str(lab.make_report("study.yaml").answer))
    assert '"a, b" (mixer=' in answer and "a (b" not in answer


def test_suggested_commands_select_the_arm(study_folder):
    records = lab.make_report("study.yaml").records
    records = [replace(record, changed=("lab",) if record.arm.name == "a, b" else ()) for record in records]
    command = NextCommand(Path("study.yaml"), [], Path("runs")).retrain_command(records)
    (warning,) = describe_changed_code(records)
    for line in (command, warning.split("`")[1]):
        assert shlex.split(line)[-2:] == ["--only", 'arm="a, b"']


def test_folder_of_the_study_restores_names_and_levels(study_folder):
    experiment = experiment_from_snapshot(load_snapshot(StudyStore("runs", "study")))
    assert {(arm.name, arm.levels["model.mixer"]) for arm in experiment.arms} == {
        (name, mixer) for name in ("a, b", "c") for mixer in ("sum", "vector")
    }
    assert all(experiment.make_cell(arm, {}, 0).model["mixer"]["name"] in arm.title for arm in experiment.arms)
