"""MLflow holds what the folders hold: each run once and each point once, also after crashes."""

import json
import math
import shutil
from dataclasses import replace
from typing import get_args

import pytest

from hqlt_lab.model.analysis.backend_report import LayerBackends
from hqlt_lab.ops.dispatch import BackendChoice
from hqlt_lab.rundir.cell_state import TERMINAL_STATES, CellState
from hqlt_lab.rundir.diagnostics import DeterminismCheck, ProbeWriter, write_backends
from hqlt_lab.rundir.evaluations import write_evaluation
from hqlt_lab.rundir.metrics import MetricsWriter
from hqlt_lab.rundir.sync_state import SYNC_STATE_FILE, read_sync_state
from hqlt_lab.study.ledger import cell_record
from hqlt_lab.track.mlflow_sync import sync_study
from hqlt_lab.track.mlflow_writer import MlflowWriter
from hqlt_lab.track.tags import MLFLOW_STATUS, sanitize_key
from tests.track.conftest import find_duplicates, make_cell, make_study, write_outcome, write_points


def test_a_cell_becomes_a_run_with_its_tags_and_parameters(reader, study, send_cells):
    cell = make_cell(study, code={"lab": "123"})
    write_points(cell, 1, 3)
    write_backends(
        cell.folder,
        "cuda",
        "bf16-mixed",
        [LayerBackends(BackendChoice("fla", "fast"), BackendChoice("flex", "not flash_attn"))],
    )
    send_cells(cell)
    [run], [parent] = reader.search_runs(study), reader.search_runs(study, "study")
    tags = run.data.tags
    assert (tags["hqlt.study"], tags["hqlt.arm"], tags["hqlt.seed"]) == (study.name, "synchronous", "0")
    assert (tags["hqlt.cell"], tags["hqlt.axis.mixer"], tags["hqlt.scan"]) == ("abc", "sum", "fla")
    assert (tags["hqlt.attention"], tags["hqlt.attention_why"]) == ("flex", "not flash_attn")
    assert (tags["mlflow.parentRunId"], run.info.run_name) == (parent.info.run_id, cell.title)
    assert run.data.params == {"arm": "synchronous", "seed": "0", "mixer": "sum", "lr": "0.001"}
    assert run.inputs.dataset_inputs[0].dataset.name == "parity"
    assert run.info.status == "RUNNING"
    assert run.info.start_time == reader.client.get_metric_history(run.info.run_id, "train/loss")[0].timestamp


def test_the_parent_run_has_the_settings_and_provenance_of_the_study(reader, study, send_cells):
    send_cells(make_cell(study))
    [parent] = reader.search_runs(study, "study")
    assert parent.data.tags["mlflow.source.git.commit"] == "0" * 40
    names = {name.rpartition(".")[2] for name in reader.artifact_names(parent, "provenance")}
    assert "experiment.yaml" in reader.artifact_names(parent) and names == {"json", "diff"}
    experiment = reader.client.get_experiment_by_name(study.name)
    assert experiment.tags["mlflow.note.content"] == study.question
    assert experiment.artifact_location.endswith(f"artifacts/{study.name}")


def test_a_finished_cell_has_its_cost_and_artifacts(reader, study, send_cells):
    cell = make_cell(study, state="done", code={"lab": "123"})
    write_points(cell, 1, 3)
    write_outcome(cell, 3)
    (cell.folder / "cell.json").write_text("{}")
    (cell.folder / "log.txt").write_text("a line\n")
    send_cells(cell)
    [run] = reader.search_runs(study)
    assert run.info.status == "FINISHED" and run.info.end_time is not None
    assert (run.data.metrics["cost/seconds"], run.data.metrics["cost/tokens_per_second"]) == (3.0, 1e4)
    assert (run.data.metrics["cost/state_bytes"], run.data.metrics["cost/flops_per_token"]) == (640.0, 2.5e3)
    assert reader.artifact_names(run) == {"cell.json", "outcome.json", "log.txt", "provenance.json"}


def test_a_run_is_tagged_as_repeatable_or_not_once_that_is_known(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 1)
    send_cells(cell)
    [run] = reader.search_runs(study)
    assert "hqlt.repeatable" not in run.data.tags
    for check in (DeterminismCheck(False, ["loss"]), DeterminismCheck(True)):
        check.write(cell.folder)
        send_cells(cell)
        [run] = reader.search_runs(study)
        assert run.data.tags["hqlt.repeatable"] == str(check.repeatable).lower()
    write_outcome(cell, 1)
    send_cells(replace(cell, state="done"))
    assert "determinism.json" in reader.artifact_names(run)


def test_later_evaluations_of_a_cell_are_sent_once(reader, study, send_cells):
    cell = make_cell(study, state="done")
    write_points(cell, 1, 3)
    write_outcome(cell, 3)
    send_cells(cell)
    write_evaluation(cell.folder, "test", None, {"test/accuracy": 99.0, "test/loss": 0.1})
    write_evaluation(cell.folder, "test", "fw", {"test/accuracy": 50.0})
    ProbeWriter(cell.folder).write_table(3, [{"share": [0.5]}])
    send_cells(cell)
    write_evaluation(cell.folder, "test", "kv", {"test/accuracy": 70.0})
    send_cells(cell)
    [run] = reader.search_runs(study)
    assert run.data.metrics["without_fw/test/accuracy"] == 50 and run.data.metrics["test/loss"] == 0.1
    assert run.data.metrics["without_kv/test/accuracy"] == 70
    assert (
        reader.metric_steps(study, "without_fw/test/accuracy") == [3]
        and reader.metric_steps(study, "test/accuracy") == []
    )
    assert {"evaluations.json", "probes.jsonl"} < reader.artifact_names(run)


def test_a_cell_without_metrics_file_still_shows_its_outcome(reader, study, send_cells):
    cell = make_cell(study, state="done")
    write_outcome(cell, 3)
    send_cells(cell)
    [run] = reader.search_runs(study)
    assert run.data.metrics["test/accuracy"] == 99.0


@pytest.mark.parametrize(
    ("state", "status"), [("failed", "FAILED"), ("diverged", "FAILED"), ("pruned", "KILLED"), ("superseded", "KILLED")]
)
def test_the_status_of_a_run_says_how_its_cell_ended(reader, study, send_cells, state, status):
    assert state in TERMINAL_STATES
    send_cells(make_cell(study, state=state, why="the loss is nan"))
    [run] = reader.search_runs(study)
    assert (run.info.status, run.data.tags["hqlt.status"]) == (status, state)
    assert "the loss is nan" in run.data.tags["mlflow.note.content"]


def test_every_cell_state_has_an_mlflow_status():
    assert get_args(CellState) == get_args(cell_record.CellState) == tuple(MLFLOW_STATUS)


def test_a_waiting_cell_has_no_run_yet(reader, study, send_cells):
    send_cells(make_cell(study, state="waiting"))
    assert reader.search_runs(study) == []


def test_a_resumed_cell_continues_its_run(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 10)
    send_cells(cell)
    send_cells(make_cell(study, state="failed", why="killed"))
    write_points(cell, 6, 15)  # from the checkpoint at step 5
    send_cells(cell)
    write_outcome(cell, 15)
    send_cells(make_cell(study, state="done"))
    [run] = reader.search_runs(study)
    assert reader.metric_steps(study) == list(range(1, 16))
    assert run.info.status == "FINISHED"
    history = reader.client.get_metric_history(run.info.run_id, "cost/seconds")
    assert len(history) == 1


def test_a_crash_between_sending_and_writing_the_sync_state_causes_no_duplicates(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 5)
    send_cells(cell)
    before = (cell.folder / SYNC_STATE_FILE).read_text()
    with MetricsWriter(cell.folder) as writer:
        writer.write_row(6, {"train/loss": math.nan, "valid/accuracy": math.inf})
    write_points(cell, 7, 1500)
    send_cells(cell)
    (cell.folder / SYNC_STATE_FILE).write_text(before)  # as if the sync state had not been written
    write_points(cell, 1501, 1505)
    send_cells(cell)
    assert reader.metric_steps(study) == reader.metric_steps(study, "valid/accuracy") == list(range(1, 1506))


def test_a_run_whose_id_was_lost_is_found_by_its_tags(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 5)
    send_cells(cell)
    (cell.folder / SYNC_STATE_FILE).unlink()
    write_points(cell, 6, 7)
    send_cells(cell)
    assert len(reader.search_runs(study)) == 1
    assert reader.metric_steps(study) == list(range(1, 8))


def test_an_unreadable_sync_state_is_ignored(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 5)
    send_cells(cell)
    (cell.folder / SYNC_STATE_FILE).write_text("{")
    send_cells(cell)
    assert reader.metric_steps(study) == list(range(1, 6))


def test_a_deleted_database_is_recreated_from_the_folders(reader, study, send_cells, tracking_store):
    cells = [make_cell(study, key, "done") for key in ("abc", "def")]
    for cell in cells:
        write_points(cell, 1, 5)
        write_outcome(cell, 5)
    send_cells(*cells)
    tracking_store.sqlite_path.unlink()
    shutil.rmtree(tracking_store.artifacts)
    send_cells(*cells)
    assert len(reader.search_runs(study)) == 2 and len(reader.search_runs(study, "study")) == 1
    for cell in cells:
        assert reader.metric_steps(study, key=cell.key) == list(range(1, 6))
    assert "outcome.json" in reader.artifact_names(reader.search_runs(study)[0])
    assert "experiment.yaml" in reader.artifact_names(reader.search_runs(study, "study")[0])


def test_two_studies_share_a_database(reader, study, tracking_store, tmp_path):
    other = make_study("which_mixer", tmp_path)
    for info in (study, other):
        cell = make_cell(info, "same")
        write_points(cell, 1, 3)
        assert sync_study(tracking_store, info, [cell]) is None
    for info in (study, other):
        assert reader.metric_steps(info, key="same") == [1, 2, 3]
    assert read_sync_state(study.folder).experiment != read_sync_state(other.folder).experiment


def test_names_that_mlflow_refuses_are_sanitized(reader, study, send_cells):
    names = ["acc,none", "a@b[0]", "/lead", "a//b", "../up", ".", "", "x" * 300, "gr\u00f6\u00dfe", "trail/"]
    cell = make_cell(study, axes={"layers[0].mixer": "sum", "lr": "x" * 9000})
    with MetricsWriter(cell.folder) as writer:
        writer.write_row(1, dict.fromkeys(names, 1.0))
        writer.write_row(2, {"train/loss": 1.0})
    send_cells(cell)
    [run] = reader.search_runs(study)
    assert {sanitize_key(name) for name in names} <= set(run.data.metrics)
    assert reader.metric_steps(study) == [2]
    assert run.data.params["layers_0_.mixer"] == "sum"


def test_a_renamed_arm_changes_the_tag_without_an_error(reader, study, send_cells):
    send_cells(make_cell(study, arm="old"))
    send_cells(make_cell(study, arm="new"))
    [run] = reader.search_runs(study)
    assert run.data.tags["hqlt.arm"] == "new"


def test_deleted_runs_and_experiments_are_restored(reader, study, send_cells):
    cell = make_cell(study)
    write_points(cell, 1, 3)
    send_cells(cell)
    reader.client.delete_run(reader.search_runs(study)[0].info.run_id)
    reader.client.delete_experiment(read_sync_state(study.folder).experiment)
    send_cells(cell)
    assert reader.metric_steps(study) == [1, 2, 3]


def test_cells_without_changes_cause_no_writes(study, send_cells, tracking_store):
    cells = [make_cell(study, str(number), "done") for number in range(3)]
    send_cells(*cells)
    modified = tracking_store.sqlite_path.stat().st_mtime_ns
    send_cells(*cells)
    assert tracking_store.sqlite_path.stat().st_mtime_ns == modified


def test_the_point_of_every_step_is_stored_once(reader, study, send_cells):
    cell = make_cell(study)
    for last in (3, 7, 20):  # several passes
        write_points(cell, last - 2, last)
        send_cells(cell)
    assert find_duplicates(reader.metric_steps(study)) == []
    assert (
        json.loads((cell.folder / SYNC_STATE_FILE).read_text())["offset"]
        == (cell.folder / "metrics.jsonl").stat().st_size
    )


def test_cell_is_sent_in_a_bounded_number_of_calls(tracking_store, study, monkeypatch):
    cells = [make_cell(study, key, "done") for key in ("first", "abc")]
    for cell in cells:
        write_points(cell, 1, 1250)  # two metrics per step: 2,500 values
        write_outcome(cell, 1250)
    writer = MlflowWriter(tracking_store, study)
    writer.send_cell(cells[0])  # connects and logs the study
    calls = []

    def record_calls(name, method):
        def call(*arguments, **keywords):
            calls.append(name)
            return method(*arguments, **keywords)

        return call

    store = writer.client._tracking_client.store
    prefixes = ("log_", "set_", "create_", "update_", "get_", "search_")
    for name in (name for name in dir(type(store)) if name.startswith(prefixes)):
        monkeypatch.setattr(store, name, record_calls(name, getattr(store, name)))
    writer.send_cell(cells[1])
    assert calls.count("log_batch") <= 4, "MLflow takes 1,000 metrics, tags and parameters in a call"
    assert len(calls) <= 10, calls
