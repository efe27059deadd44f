"""lm-eval in a study: after training, in the report and MLflow, with `hqlt lm-eval`, and after interruptions."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.api import load_experiment, make_report, resolve_tracking_store
from hqlt_lab.api.trained_cells import require_reported_folders
from hqlt_lab.cli.app import app
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.report.lm_eval_protocol_filter import describe_mixed_protocols, drop_other_protocols
from hqlt_lab.rundir.lm_eval_results import (
    LM_EVAL_FILE,
    collect_metric_values,
    latest_complete_results,
    read_task_results,
)
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.track.tracking_store import StoreConnection
from tests.evaluation.local_datasets import write_local_datasets
from tests.issues import raises_issue

pytestmark = pytest.mark.usefixtures("study")


def invoke_cli(*arguments, exit_code=0):
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.stdout if "--json" in arguments else result.output


def cell_folders():
    return require_reported_folders(load_experiment("study.yaml"), "runs", [])


def mlflow_run(folder):
    return StoreConnection(resolve_tracking_store("runs")).open_client(), read_sync_state(folder).run


def test_only_selected_points_are_evaluated_and_the_report_shows_their_results(study):
    files = sorted(Path("runs").glob(f"studies/*/cells/*/{LM_EVAL_FILE}"))
    assert [file.parent for file in files] == sorted(folder.relative_to(Path.cwd()) for folder in cell_folders())
    assert len(files) == 2 and not study.evaluation_errors
    rows = {row.title: row for row in study.report.rows}
    for folder, row in zip(cell_folders(), rows.values(), strict=True):
        values = collect_metric_values(latest_complete_results(read_task_results(folder)))
        assert row.summaries["eval/piqa/acc"].median == values["eval/piqa/acc"].value
        assert row.summaries["eval/wikitext/word_perplexity"].median > 1
    text = study.report.to_markdown()
    assert "eval/: lm-eval 0.4." in text and "length 64, 0 shots" in text and "66.2" in text
    seed = json.loads(study.report.to_json())["rows"][0]["seeds"][0]
    (protocol,) = seed["protocols"]["eval/piqa/acc"]
    assert (protocol["documents"], protocol["limit"]) == (3, None)


def test_accuracies_are_maximized_independently_of_the_selection_metric(study):
    measure = study.report.experiment.measure
    assert {name: measure.metric_direction(name) for name in measure.report} == {
        "test/perplexity": "minimize",
        "eval/piqa/acc": "maximize",
        "eval/wikitext/word_perplexity": "minimize",
    }


def test_evaluation_settings_do_not_change_the_cell_keys():
    keys = [
        {planned.key for planned in expand_plan(load_experiment("study.yaml", overrides))}
        for overrides in ([], ["evaluate.limit=1"])
    ]
    assert keys[0] == keys[1]


def test_mlflow_has_the_metrics_and_the_samples_of_every_document(study):
    assert study.sync_warning is None
    for folder in cell_folders():
        client, run = mlflow_run(folder)
        values = collect_metric_values(latest_complete_results(read_task_results(folder)))
        metrics = client.get_run(run).data.metrics
        assert metrics["eval/piqa/acc"] == pytest.approx(values["eval/piqa/acc"].value)
        assert {artifact.path for artifact in client.list_artifacts(run)} >= {LM_EVAL_FILE, "samples"}
        names = [artifact.path for artifact in client.list_artifacts(run, "samples")]
        assert sorted(Path(name).name.split(".")[0] for name in names) == ["piqa", "wikitext"]
        lines = (folder / read_task_results(folder)[0].samples).read_text().splitlines()
        assert len(lines) == 3 and json.loads(lines[0])["doc"]["goal"] == "To open a door"


def test_repeating_a_run_evaluates_nothing():
    before = [(folder / LM_EVAL_FILE).stat().st_mtime_ns for folder in cell_folders()]
    lab.run("study.yaml")
    assert [(folder / LM_EVAL_FILE).stat().st_mtime_ns for folder in cell_folders()] == before


def test_lm_eval_command_runs_missing_tasks_prints_columns_and_updates_mlflow():
    output = invoke_cli(
        "lm-eval", "study.yaml", "--tasks", "general", "--local", "local", "--batch-size", "3", "--into", "all.json"
    )
    for column in ("Wiki. ppl", "LMB. acc", "Hella.", "ARC-c", "Avg.", "vector", "softmax"):
        assert column in output
    first, second = json.loads(Path("all.json").read_text())
    assert first["metrics"]["eval/general/average"] > 0 and second["arm"] == "softmax"
    assert len(read_task_results(cell_folders()[0])) == 7
    client, run = mlflow_run(cell_folders()[0])
    average = client.get_run(run).data.metrics["eval/general/average"]
    assert average == pytest.approx(first["metrics"]["eval/general/average"])


def test_cell_can_be_evaluated_by_its_key_with_and_without_a_memory():
    folder = cell_folders()[0]
    (result,) = json.loads(
        invoke_cli("lm-eval", folder.name, "--tasks", "wikitext", "--local", "local", "--lesion", "fw", "--json")
    )
    intact, lesioned = (result["metrics"][f"{prefix}eval/wikitext/word_perplexity"] for prefix in ("", "without_fw/"))
    assert intact != lesioned
    client, run = mlflow_run(folder)
    assert client.get_run(run).data.metrics["without_fw/eval/wikitext/word_perplexity"] == pytest.approx(lesioned)
    output = invoke_cli(
        "lm-eval", "study.yaml", "--tasks", "wikitext", "--local", "local", "--lesion", "fw", exit_code=3
    )
    assert "vector without fw" in output and "lesion: " in output


def test_result_with_a_limit_does_not_replace_the_complete_result():
    folder = cell_folders()[1]
    before = collect_metric_values(latest_complete_results(read_task_results(folder)))
    result = json.loads(
        invoke_cli(
            "lm-eval", folder.name, "--tasks", "piqa", "--local", "local", "--limit", "1", "--length", "80", "--json"
        )
    )[0]
    assert result["protocols"]["eval/piqa/acc"][0]["limit"] == 1
    assert "the context of 80 tokens is longer than the training length of 64" in result["remarks"][0]
    assert collect_metric_values(latest_complete_results(read_task_results(folder))) == before


def test_metrics_with_different_protocols_are_dropped_with_a_warning():
    report = make_report("study.yaml")
    assert not any("lm-eval protocol" in warning for warning in report.warnings)
    records = list(report.records)
    index = next(index for index, record in enumerate(records) if "eval/piqa/acc" in record.protocols)
    (protocol,) = records[index].protocols["eval/piqa/acc"]
    protocols = dict(records[index].protocols) | {"eval/piqa/acc": (replace(protocol, limit=2),)}
    records[index] = replace(records[index], protocols=protocols)
    (warning,) = describe_mixed_protocols(records, ["eval/piqa/acc"])
    assert warning.startswith("eval/piqa/acc: vector omitted, because the lm-eval protocol")
    assert "the first 2 documents" in warning
    assert "eval/piqa/acc" not in drop_other_protocols(records)[index].metrics
    assert "eval/piqa/acc" in records[index].metrics
    changed = type(report).from_records(report.experiment, records)
    assert "eval/piqa/acc" not in changed.rows[0].summaries and warning in changed.warnings


def test_missing_dataset_is_reported_and_other_results_are_saved(tmp_path):
    local = write_local_datasets(tmp_path / "some", ("arc_easy",))
    folder = cell_folders()[0]
    options = ("--tasks", "swde,arc_easy", "--local", str(local), "--length", "60")
    output = invoke_cli("lm-eval", folder.name, *options, exit_code=3)
    assert "swde: " in output and "arc_easy/acc" in output
    assert "arc_easy" in [result.task for result in results_at_length(folder, 60)]


FOUR_TASKS = "arc_easy,arc_challenge,lambada_openai,hellaswag"


def test_aborted_evaluation_resumes_with_the_missing_tasks():
    class AbortError(BaseException):
        pass

    def abort_at_lambada(task, done, total):
        if "lambada" in task:
            raise AbortError

    key, options = cell_folders()[0].name, {"local": "local", "length": 58}
    with pytest.raises(AbortError):
        lab.evaluate_tasks(key, FOUR_TASKS.split(","), on_progress=abort_at_lambada, **options)
    saved = results_at_length(cell_folders()[0], 58)
    assert [result.task for result in saved] == ["arc_easy", "arc_challenge"]
    evaluated = []
    lab.evaluate_tasks(
        key, FOUR_TASKS.split(","), on_progress=lambda task, done, total: evaluated.append(task), **options
    )
    assert results_at_length(cell_folders()[0], 58)[:2] == saved
    assert {task.rpartition(" ")[2] for task in evaluated} == {"lambada_openai", "hellaswag"}


@pytest.mark.slow
def test_evaluation_killed_by_sigkill_resumes_with_the_missing_tasks():
    folder = cell_folders()[1]
    command = ["lm-eval", folder.name, "--tasks", FOUR_TASKS, "--local", "local"]
    command += ["--length", "56", "--batch-size", "1"]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("hqlt"), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not results_at_length(folder, 56):
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    saved = results_at_length(folder, 56)
    assert 1 <= len(saved) < 4
    invoke_cli(*command)
    results = results_at_length(folder, 56)
    assert len(results) == 4 and results[: len(saved)] == saved


def results_at_length(folder, length):
    return [result for result in read_task_results(folder) if result.protocol.length == length]


def test_again_option_replaces_known_results():
    folder = cell_folders()[0]
    command = ("lm-eval", folder.name, "--tasks", "piqa", "--local", "local")
    first = (folder / LM_EVAL_FILE).read_text()
    invoke_cli(*command)
    assert (folder / LM_EVAL_FILE).read_text() == first
    invoke_cli(*command, "--again")
    assert (folder / LM_EVAL_FILE).read_text() != first and len(json.loads(first)) == len(read_task_results(folder))


def test_plan_lists_the_tasks_to_be_evaluated():
    assert (
        "every reported cell is evaluated on piqa, wikitext; context length: the training length, with the files in"
        in " ".join(invoke_cli("plan", "study.yaml").split())
    )


@pytest.mark.parametrize(
    ("override", "path", "code"),
    [
        ("evaluate=[generl]", "evaluate.tasks", "unknown_evaluation_task"),
        ("evaluate=[nowhere.yaml]", "evaluate.tasks", "task_file_not_found"),
        ("evaluate={tasks: [piqa], length: 0}", "evaluate.length", "below_minimum"),
        ("evaluate={tasks: [piqa], lenght: 3}", "evaluate.lenght", "unknown_setting"),
        ("evaluate=[]", "evaluate", "not_a_list_of_tasks"),
        ("evaluate=[piqa]", "measure.report", "metric_of_missing_task"),
        ("task=parity", "evaluate", "evaluation_without_language"),
    ],
)
def test_invalid_evaluate_section_is_an_error_when_the_file_is_loaded(override, path, code):
    overrides = [
        override,
        "measure.report=[eval/piqa/acc,eval/wikitext/word_perplexity]",
        "measure.select=valid/loss",
        "measure.direction=minimize",
    ]
    with raises_issue(path, code):
        load_experiment("study.yaml", overrides)
