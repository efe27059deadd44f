"""The commands about studies: run, status, report, compare, logs and forget."""

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import find_cell_folder, load_experiment, sync_study
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.next_command import NextCommand
from hqlt_lab.cli.terminal.study_progress import StudyProgress
from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.scoring import score_model
from tests.issues import raises_issue

STUDY = """
question: Which [mixer] is | best?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model:
  {width: 8, heads: 1, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}, mixer: sum, positions: none}
train: {steps: 4, batch_size: 4, lr: 1e-2, valid_every: 2, log_every: 1}
trainer: {accelerator: cpu}
launcher: {workers: 2, threads: 1}
arms: {sum: {}, vector: {model.mixer: vector}}
seeds: 2
published: {sum: {test/normalized_accuracy: {best: 12.5}}}
quoted: {Mamba: {test/normalized_accuracy: {best: 100.0}}}
"""


def run_command(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    """The working directory, in which a study was run."""
    folder = tmp_path_factory.mktemp("studies")
    original_folder = os.getcwd()
    os.chdir(folder)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "output.txt").write_text(run_command("run", "study.yaml"))
    sync_study("study.yaml")  # on a busy machine a run may end before everything is in MLflow
    yield folder
    os.chdir(original_folder)


def test_run_prints_cells_table_answer_and_next_commands(study_folder):
    output = (study_folder / "output.txt").read_text()
    assert "0 of 4 cells are finished; 4 to train, 2 at a time." in output
    assert "4/4  " in output
    assert "Mamba" in output and "vector" in output
    assert "test/normalized_accuracy" in output and "All seeds were trained for 4 steps." in output
    assert "hqlt ui study.yaml" in output and "hqlt report study.yaml" in output


def test_second_file_of_the_same_name_does_not_share_the_study(study_folder, tmp_path):
    report = (study_folder / "runs/studies/study/report.md").read_text()
    other = tmp_path / "study.yaml"
    other.write_text(STUDY.replace("seeds: 2", "seeds: 1"))
    for command in ("run", "status", "report"):
        with pytest.raises(StoreError, match=r"belongs to study\.yaml"):
            run_command(command, str(other))
    assert (study_folder / "runs/studies/study/report.md").read_text() == report


def test_next_command_escapes_brackets_for_rich():
    command = NextCommand(Path("study.yaml"), ["model.mixer=[sum, vector]"], Path("runs")).format_command("report")
    assert Text.from_markup(command).plain == "hqlt report study.yaml --set 'model.mixer=[sum, vector]'"


def test_second_run_has_nothing_left_to_train(study_folder):
    assert "4 of 4 cells are finished; nothing is left to train." in run_command("run", "study.yaml")


def test_run_with_json_prints_the_report_to_stdout_and_progress_to_stderr(study_folder):
    result = CliRunner().invoke(app, ["run", "study.yaml", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout) == json.loads(run_command("report", "study.yaml", "--json"))
    assert "nothing is left to train" in result.stderr


def test_quiet_run_prints_the_report_without_progress(study_folder):
    run = CliRunner().invoke(app, ["run", "study.yaml"], catch_exceptions=False)
    quiet_run = CliRunner().invoke(app, ["-q", "run", "study.yaml"], catch_exceptions=False)
    assert "nothing is left to train" in run.stderr and "nothing is left to train" not in run.stdout
    assert (quiet_run.stdout, quiet_run.stderr) == (run.stdout, "")
    assert load_experiment("study.yaml").question in quiet_run.stdout


def test_status_lists_every_cell_as_text_or_json(study_folder):
    assert "4 done. No process is running this study." in run_command("status", "study.yaml")
    records = json.loads(run_command("status", "study.yaml", "--only", "arm=vector", "--json"))
    states = [(record["arm"], record["seed"], record["state"]) for record in records]
    assert states == [("vector", 0, "done"), ("vector", 1, "done")]
    assert all(record["metrics"] and record["run"] for record in records)


def test_report_can_be_markdown_or_csv(study_folder):
    assert "| Mamba |" in run_command("report", "study.yaml", "--markdown")
    rows = list(csv.DictReader(io.StringIO(run_command("report", "study.yaml", "--csv"))))
    assert {row["arm"] for row in rows} == {"sum", "vector", "Mamba"}
    assert (study_folder / "runs/studies/study/report.md").read_text() == run_command(
        "report", "study.yaml", "--markdown"
    )


@pytest.mark.parametrize(
    "command",
    ["plan", "run", "status", "report", "report --html", "evaluate", "forget", "lm-eval", "train", "compare", "worker"],
)
def test_every_command_reads_and_validates_the_file_at_most_once(command, study_folder):
    name, *options = command.split()
    result = CliRunner().invoke(app, ["-v", name, "study.yaml", *options], input="n\n")
    steps = [line.partition(" ")[0] for line in result.stderr.splitlines()]
    assert steps.count("Reading") == 1 and steps.count("Validating") <= 1, result.output


def test_report_of_a_study_with_a_cached_plan_builds_no_model(study_folder, monkeypatch):
    built = []
    original = SequenceModel.__init__
    monkeypatch.setattr(
        SequenceModel, "__init__", lambda *args, **kwargs: (built.append(1), original(*args, **kwargs))[1]
    )
    load_experiment("study.yaml")
    assert built, "validation builds the models"
    built.clear()
    report = run_command("report", "study.yaml", "--json")
    run_command("status", "study.yaml")
    assert not built
    (study_folder / "runs/studies/study/plan.json").unlink()
    assert run_command("report", "study.yaml", "--json") == report and built


def test_compare_shows_the_differences_between_two_cells(study_folder):
    table = lab.results("study.yaml")
    keys = [table.key[table.arm == arm].iloc[0] for arm in ("sum", "vector")]
    comparison = json.loads(run_command("compare", keys[0][:8], keys[1], "--json"))
    entries = comparison["settings"]["entries"]
    differences = {entry["path"]: entry["values"] for entry in entries if "path" in entry}
    assert differences == {"model.mixer.name": ["sum", "vector"], "arm": ["sum", "vector"]}
    assert comparison["code"]["sentences"] == ["All were trained with the same code, which has not changed since."]
    values = {entry["name"]: entry["values"] for entry in comparison["results"]["entries"]}
    assert values["test/normalized_accuracy"] == list(table["test/normalized_accuracy"][table.key.isin(keys)])


def test_compare_shows_the_differences_between_a_trained_study_and_its_changed_file(study_folder):
    (study_folder / "later.yaml").write_text(STUDY.replace("steps: 4", "steps: 5").replace("seeds: 2", "seeds: 3"))
    output = run_command("compare", "study", "later.yaml")
    assert re.search(r"train.steps +4 +5 *\n", output) and re.search(r"seeds +\[0, 1\] +\[0, 1, 2\] *\n", output)
    assert "The code that trained later.yaml is not known." in output
    assert "## Results" in run_command("compare", "study", "study.yaml", "--markdown")
    entries = json.loads(run_command("compare", "study", "study.yaml", "--json"))["results"]["entries"]
    (row,) = [entry for entry in entries if entry["arm"] == "sum"]
    assert row["summaries"][0] == row["summaries"][1] and row["differences"][1]["mean"] == 0


def test_comparing_cells_imports_neither_torch_nor_mlflow(study_folder):
    keys = list(lab.results("study.yaml").key[:2])
    script = f"import sys, hqlt_lab; hqlt_lab.compare({keys}).to_markdown(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "scipy.stats"} & set(loaded)


def test_compare_of_a_single_file_uses_its_published_values(study_folder):
    output = run_command("compare", "study.yaml")
    assert "Of 1 published number: 1 " in output and "best 12.5" in output


def test_comparing_an_unknown_study_or_file_is_an_error(study_folder):
    with pytest.raises(StoreError, match=r"one of these names: study\. Did you mean 'study'\?"):
        lab.compare(["studdy", "study"])
    with raises_issue("", "file_cannot_be_read"):
        lab.compare(["nothing.yaml"])


def test_report_can_be_latex_json_or_html(study_folder):
    assert "\\toprule" in run_command("report", "study.yaml", "--latex")
    report = json.loads(run_command("report", "study.yaml", "--json"))
    assert [row["arm"] for row in report["rows"]] == ["sum", "vector", "Mamba"]
    page = study_folder / run_command("report", "study.yaml", "--html").strip()
    assert page == (study_folder / "runs/studies/study/report.html").resolve()
    assert "hqlt run study.yaml" in page.read_text() and "figure-learning_curves" in page.read_text()


def test_report_is_saved_to_the_given_folder(study_folder):
    paths = run_command("report", "study.yaml", "--save", "paper").splitlines()
    assert paths[-1] == "paper/figures" and all((study_folder / path).exists() for path in paths)
    assert (study_folder / "paper/figures/learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_run_saves_the_report_and_prints_the_path_of_the_page(study_folder):
    assert "runs/studies/study/report.html" in (study_folder / "output.txt").read_text()
    assert {"report.md", "report.csv", "report.tex", "report.json", "report.html", "figures"} <= {
        path.name for path in (study_folder / "runs/studies/study").iterdir()
    }


def test_logs_prints_the_log_of_a_cell(study_folder):
    key = lab.results("study.yaml").key[0]
    assert "--- attempt 1" in run_command("logs", key[:8])


def test_forget_supersedes_cells_and_run_retrains_them(study_folder):
    assert "2 cells are superseded" in run_command("forget", "study.yaml", "--only", "arm=vector", "--yes")
    assert "2 done, 2 waiting, 2 superseded" in run_command("status", "study.yaml")
    output = run_command("run", "study.yaml", "--limit", "1")
    assert "2 of 4 cells are finished; 1 to train" in output
    assert "so far (3 of 4 cells)" in output.lower()
    run_command("run", "study.yaml")
    assert "4 done, 2 superseded" in run_command("status", "study.yaml")
    assert "None of these cells has been started." in run_command("forget", "study.yaml", "--set", "train.lr=0.5")


def test_results_is_a_data_frame_with_a_row_per_cell(study_folder):
    table = lab.results("study.yaml")
    assert sorted(zip(table.arm, table.seed, strict=True)) == [("sum", 0), ("sum", 1), ("vector", 0), ("vector", 1)]
    assert table["test/normalized_accuracy"].notna().all()


def test_loaded_model_has_the_scores_of_the_results(study_folder):
    table = lab.results("study.yaml")
    for name in (table.key[1], table.run[1][:12], table.folder[1]):
        model, task = lab.load(name)
        metrics = score_model(model, task, "test", 16).metrics
        assert metrics["normalized_accuracy"] == table["test/normalized_accuracy"][1]
        assert metrics["loss"] == pytest.approx(table["test/loss"][1], rel=1e-6)


def test_unknown_or_ambiguous_cell_is_an_error(study_folder):
    with pytest.raises(StoreError, match="No trained cell matches 'no such run' in runs"):
        lab.load("no such run")
    with pytest.raises(StoreError, match="4 trained cells match "):
        find_cell_folder("")


def test_next_command_repeats_the_cell_selection_for_run_only():
    next_command = NextCommand(
        Path("a.yaml"), ["train.lr=1"], Path("runs"), selection_arguments=("--only", "arm=a", "--limit", "2")
    )
    assert next_command.format_command("run") == "hqlt run a.yaml --set train.lr=1 --only arm=a --limit 2"
    assert next_command.format_command("report") == "hqlt report a.yaml --set train.lr=1"


def test_plan_prints_how_many_cells_are_settled_and_left(study_folder):
    assert "4 of 4 cells are finished; nothing is left to train." in run_command("plan", "study.yaml")
    assert "4 of 6 cells are finished; 2 to train, less than" in run_command("plan", "study.yaml", "--set", "seeds=3")
    assert "cells are finished" not in run_command("plan", "study.yaml", "--runs", "elsewhere")


def test_runs_folder_beside_the_file_is_suggested(study_folder, tmp_path, monkeypatch):
    (tmp_path / "study.yaml").write_text((study_folder / "study.yaml").read_text())
    shutil.copytree(study_folder / "runs", tmp_path / "runs")
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    monkeypatch.chdir(other_folder)
    for command in ("status", "report"):
        result = CliRunner().invoke(app, [command, "../study.yaml"])
        stderr = " ".join(result.stderr.split())
        assert (
            result.exit_code == 0
            and ("runs has no results of this study, but ../runs has: use --runs ../runs") in stderr
        )


def test_file_name_without_suffix_is_an_error_that_suggests_the_file(study_folder):
    result = CliRunner().invoke(app, ["status", "study"])
    assert "Did you mean 'study.yaml'?" in str(result.exception)


def test_complete_transfer_to_mlflow_is_not_reported():
    output = io.StringIO()
    progress = StudyProgress(Console(file=output, width=200), MeasureConfig())
    for sent in (4, 3):
        progress.last_sync_line_time = -math.inf
        progress.on_sync_progress(sent, 4)
    assert output.getvalue() == "Logged 3 of 4 cells to MLflow. After Ctrl-C, the next run logs the rest.\n"
