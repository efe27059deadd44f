"""The verbs about studies, typed."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import catch_up, folder_of
from hqlt_lab.cli.app import app
from hqlt_lab.cli.typed import Typed
from hqlt_lab.errors import ConfigError, StoreError
from hqlt_lab.train.score import score

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
published: {sum: {test/normalised_accuracy: {best: 12.5}}}
quoted: {Mamba: {test/normalised_accuracy: {best: 100.0}}}
"""


def typed(*words: str) -> str:
    told = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which a study was run."""
    folder = tmp_path_factory.mktemp("studies")
    before = os.getcwd()
    os.chdir(folder)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "said.txt").write_text(typed("run", "study.yaml"))
    catch_up("study.yaml")  # on a busy machine MLflow may not have taken in everything when a run ends
    yield folder
    os.chdir(before)


def test_run_shows_cells_the_table_the_answer_and_what_to_type_next(place):
    told = (place / "said.txt").read_text()
    assert "0 of 4 cells are settled; 4 to train, 2 at a time." in told
    assert "4/4  " in told
    assert "Mamba" in told and "vector" in told
    assert "Within 4 steps," in told
    assert "hqlt ui study.yaml" in told and "hqlt report study.yaml" in told


def test_the_next_command_keeps_its_brackets():
    command = Typed(Path("study.yaml"), ["model.mixer=[sum, vector]"], Path("runs")).with_verb("report")
    assert Text.from_markup(command).plain == "hqlt report study.yaml --set 'model.mixer=[sum, vector]'"


def test_run_again_has_nothing_left_to_train(place):
    assert "4 of 4 cells are settled; nothing is left to train." in typed("run", "study.yaml")


def test_run_tells_programs_the_report_and_everything_else_to_standard_error(place):
    told = CliRunner().invoke(app, ["run", "study.yaml", "--json"], catch_exceptions=False)
    assert json.loads(told.stdout) == json.loads(typed("report", "study.yaml", "--json"))
    assert "nothing is left to train" in told.stderr


def test_status_lists_every_cell_and_json_has_it_all(place):
    assert "4 done. Nobody is at work on it." in typed("status", "study.yaml")
    found = json.loads(typed("status", "study.yaml", "--only", "arm=vector", "--json"))
    assert [(one["arm"], one["seed"], one["state"]) for one in found] == [("vector", 0, "done"), ("vector", 1, "done")]
    assert all(one["metrics"] and one["run"] for one in found)


def test_report_is_markdown_or_csv_on_demand(place):
    assert "| Mamba |" in typed("report", "study.yaml", "--markdown")
    rows = list(csv.DictReader(io.StringIO(typed("report", "study.yaml", "--csv"))))
    assert {row["arm"] for row in rows} == {"sum", "vector", "Mamba"}
    assert (place / "runs/studies/study/report.md").read_text() == typed("report", "study.yaml", "--markdown")


def test_compare_says_what_differs_between_two_cells(place):
    table = lab.results("study.yaml")
    keys = [table.key[table.arm == arm].iloc[0] for arm in ("sum", "vector")]
    told = json.loads(typed("compare", keys[0][:8], keys[1], "--json"))
    different = {one["path"]: one["values"] for one in told["settings"]["entries"] if "path" in one}
    assert different == {"model.mixer.name": ["sum", "vector"], "arm": ["sum", "vector"]}
    assert told["code"]["said"] == ["The same code made all of them, and it has not changed since."]
    values = {one["name"]: one["values"] for one in told["results"]["entries"]}
    assert values["test/normalised_accuracy"] == list(table["test/normalised_accuracy"][table.key.isin(keys)])


def test_compare_says_what_differs_between_a_study_as_it_was_trained_and_its_file_today(place):
    (place / "later.yaml").write_text(STUDY.replace("steps: 4", "steps: 5").replace("seeds: 2", "seeds: 3"))
    told = typed("compare", "study", "later.yaml")
    assert re.search(r"train.steps +4 +5 *\n", told) and re.search(r"seeds +\[0, 1\] +\[0, 1, 2\] *\n", told)
    assert "Of later.yaml it is not known which code made it." in told
    assert "## Results" in typed("compare", "study", "study.yaml", "--markdown")
    (row,) = [
        one for one in json.loads(typed("compare", "study", "study.yaml", "--json"))["results"]["entries"]
        if one["arm"] == "sum"
    ]  # fmt: skip
    assert row["summaries"][0] == row["summaries"][1] and row["differences"][1]["mean"] == 0


def test_comparing_cells_loads_neither_torch_nor_mlflow(place):
    keys = list(lab.results("study.yaml").key[:2])
    script = f"import sys, hqlt_lab; hqlt_lab.compare({keys}).markdown(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "scipy.stats"} & set(loaded)


def test_compare_tells_a_file_from_its_published_values(place):
    told = typed("compare", "study.yaml")
    assert "Of 1 published number: 1 " in told and "best 12.5" in told


def test_what_cannot_be_compared_is_told(place):
    with pytest.raises(StoreError, match=r"one of: study\. Did you mean 'study'\?"):
        lab.compare(["studdy", "study"])
    with pytest.raises(ConfigError, match="cannot be read"):
        lab.compare(["nothing.yaml"])


def test_report_is_latex_json_or_a_page_on_demand(place):
    assert "\\toprule" in typed("report", "study.yaml", "--latex")
    told = json.loads(typed("report", "study.yaml", "--json"))
    assert [row["arm"] for row in told["rows"]] == ["sum", "vector", "Mamba"]
    page = place / typed("report", "study.yaml", "--html").strip()
    assert page == (place / "runs/studies/study/report.html").resolve()
    assert "hqlt run study.yaml" in page.read_text() and "figure-learning_curves" in page.read_text()


def test_a_saved_report_is_where_it_was_asked_for(place):
    told = typed("report", "study.yaml", "--save", "paper").splitlines()
    assert told[-1] == "paper/figures" and all((place / path).exists() for path in told)
    assert (place / "paper/figures/learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_run_leaves_the_page_and_says_where(place):
    assert "runs/studies/study/report.html" in (place / "said.txt").read_text()
    assert {"report.md", "report.csv", "report.tex", "report.json", "report.html", "figures"} <= {
        path.name for path in (place / "runs/studies/study").iterdir()
    }


def test_logs_say_what_a_cell_printed(place):
    key = lab.results("study.yaml").key[0]
    assert "--- attempt 1" in typed("logs", key[:8])


def test_forget_sets_cells_aside_and_run_trains_them_anew(place):
    assert "2 cells are superseded" in typed("forget", "study.yaml", "--only", "arm=vector", "--yes")
    assert "2 done, 2 waiting, 2 superseded" in typed("status", "study.yaml")
    told = typed("run", "study.yaml", "--limit", "1")
    assert "2 of 4 cells are settled; 1 to train" in told
    assert "so far (3 of 4 cells)" in told.lower()
    typed("run", "study.yaml")
    assert "4 done, 2 superseded" in typed("status", "study.yaml")
    assert "None of these cells was tried yet." in typed("forget", "study.yaml", "--set", "train.lr=0.5")


def test_results_are_a_tidy_frame(place):
    table = lab.results("study.yaml")
    assert sorted(zip(table.arm, table.seed, strict=True)) == [("sum", 0), ("sum", 1), ("vector", 0), ("vector", 1)]
    assert table["test/normalised_accuracy"].notna().all()


def test_a_loaded_model_scores_what_the_table_says(place):
    table = lab.results("study.yaml")
    for name in (table.key[1], table.run[1][:12], table.folder[1]):
        model, task = lab.load(name)
        found = score(model, task, "test", 16).metrics
        assert found["normalised_accuracy"] == table["test/normalised_accuracy"][1]
        assert found["loss"] == pytest.approx(table["test/loss"][1], rel=1e-6)


def test_what_cannot_be_found_is_told(place):
    with pytest.raises(StoreError, match="under runs there is none"):
        lab.load("no such run")
    with pytest.raises(StoreError, match="fit: "):
        folder_of("")


def test_the_next_command_chooses_the_same_cells_and_the_others_all():
    told = Typed(Path("a.yaml"), ["train.lr=1"], Path("runs"), chosen=("--only", "arm=a", "--limit", "2"))
    assert told.with_verb("run") == "hqlt run a.yaml --set train.lr=1 --only arm=a --limit 2"
    assert told.with_verb("report") == "hqlt report a.yaml --set train.lr=1"


def test_a_plan_says_what_is_done_and_what_is_left(place):
    assert "4 of 4 cells are settled already; nothing is left to train." in typed("plan", "study.yaml")
    assert "4 of 6 cells are settled already; 2 are left, less than" in typed("plan", "study.yaml", "--set", "seeds=3")
    assert "settled already" not in typed("plan", "study.yaml", "--runs", "elsewhere")


def test_a_study_that_lies_beside_its_file_is_pointed_at(place, tmp_path, monkeypatch):
    (tmp_path / "study.yaml").write_text((place / "study.yaml").read_text())
    shutil.copytree(place / "runs", tmp_path / "runs")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    for verb in ("status", "report"):
        told = CliRunner().invoke(app, [verb, "../study.yaml"])
        said = " ".join(told.stderr.split())
        assert told.exit_code == 0 and "nothing of it in runs; but there is in ../runs: --runs ../runs" in said


def test_a_name_without_its_ending_is_understood(place):
    told = CliRunner().invoke(app, ["status", "study"])
    assert "Did you mean 'study.yaml'?" in str(told.exception)
