"""What MLflow holds is what the folders hold: each run once, each point once, whatever happened in between."""

import json
import math
import shutil
from dataclasses import replace
from typing import get_args

import pytest

from hqlt_lab.model.choices import Choices
from hqlt_lab.ops.choosing import Choice
from hqlt_lab.study import record
from hqlt_lab.track.card import ENDED, State
from hqlt_lab.track.courier import catch_up
from hqlt_lab.track.sent import FILE, read_sent
from hqlt_lab.track.spool import Spool
from hqlt_lab.track.words import STATUS, clean
from hqlt_lab.train.canary_file import Canary
from hqlt_lab.train.evaluations import write_evaluation
from hqlt_lab.train.ops_file import write_ops
from hqlt_lab.train.probe_file import ProbeFile
from tests.track.conftest import card, end, study_named, train, twice


def test_a_cell_becomes_a_run_that_says_what_it_is(look, study, mirrored):
    cell = card(study, code={"lab": "123"})
    train(cell, 1, 3)
    write_ops(cell.folder, "cuda", "bf16-mixed", [Choices(Choice("fla", "fast"), Choice("flex", "not flash_attn"))])
    mirrored(cell)
    [run], [parent] = look.runs(study), look.runs(study, "study")
    tags = run.data.tags
    assert (tags["hqlt.study"], tags["hqlt.arm"], tags["hqlt.seed"]) == (study.name, "synchronous", "0")
    assert (tags["hqlt.cell"], tags["hqlt.axis.mixer"], tags["hqlt.scan"]) == ("abc", "sum", "fla")
    assert (tags["hqlt.attention"], tags["hqlt.attention_why"]) == ("flex", "not flash_attn")
    assert (tags["mlflow.parentRunId"], run.info.run_name) == (parent.info.run_id, cell.title)
    assert run.data.params == {"arm": "synchronous", "seed": "0", "mixer": "sum", "lr": "0.001"}
    assert run.inputs.dataset_inputs[0].dataset.name == "parity"
    assert run.info.status == "RUNNING"
    assert run.info.start_time == look.client.get_metric_history(run.info.run_id, "train/loss")[0].timestamp


def test_the_parent_run_tells_the_study(look, study, mirrored):
    mirrored(card(study))
    [parent] = look.runs(study, "study")
    assert parent.data.tags["mlflow.source.git.commit"] == "0" * 40
    names = {name.rpartition(".")[2] for name in look.files(parent, "provenance")}
    assert "experiment.yaml" in look.files(parent) and names == {"json", "diff"}
    experiment = look.client.get_experiment_by_name(study.name)
    assert experiment.tags["mlflow.note.content"] == study.question
    assert experiment.artifact_location.endswith(f"artifacts/{study.name}")


def test_a_settled_cell_has_its_cost_and_files(look, study, mirrored):
    cell = card(study, state="done", code={"lab": "123"})
    train(cell, 1, 3)
    end(cell, 3)
    (cell.folder / "cell.json").write_text("{}")
    (cell.folder / "log.txt").write_text("a line\n")
    mirrored(cell)
    [run] = look.runs(study)
    assert run.info.status == "FINISHED" and run.info.end_time is not None
    assert (run.data.metrics["cost/seconds"], run.data.metrics["cost/tokens_per_second"]) == (3.0, 1e4)
    assert (run.data.metrics["cost/state_bytes"], run.data.metrics["cost/flops_per_token"]) == (640.0, 2.5e3)
    assert look.files(run) == {"cell.json", "outcome.json", "log.txt", "provenance.json"}


def test_a_run_is_tagged_with_whether_its_first_step_repeats_once_that_is_known(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 1)
    mirrored(cell)
    [run] = look.runs(study)
    assert "hqlt.repeatable" not in run.data.tags
    for found in (Canary(False, ["loss"]), Canary(True)):
        found.write(cell.folder)
        mirrored(cell)
        [run] = look.runs(study)
        assert run.data.tags["hqlt.repeatable"] == str(found.repeatable).lower()
    end(cell, 1)
    mirrored(replace(cell, state="done"))
    assert "canary.json" in look.files(run)


def test_a_cell_that_is_asked_again_has_what_it_scored_once(look, study, mirrored):
    cell = card(study, state="done")
    train(cell, 1, 3)
    end(cell, 3)
    mirrored(cell)
    write_evaluation(cell.folder, "test", None, {"test/accuracy": 99.0, "test/loss": 0.1})
    write_evaluation(cell.folder, "test", "fw", {"test/accuracy": 50.0})
    ProbeFile(cell.folder).add(3, [{"share": [0.5]}])
    mirrored(cell)
    write_evaluation(cell.folder, "test", "kv", {"test/accuracy": 70.0})
    mirrored(cell)
    [run] = look.runs(study)
    assert run.data.metrics["without_fw/test/accuracy"] == 50 and run.data.metrics["test/loss"] == 0.1
    assert run.data.metrics["without_kv/test/accuracy"] == 70
    assert look.steps(study, "without_fw/test/accuracy") == [3] and look.steps(study, "test/accuracy") == []
    assert {"evaluations.json", "probes.jsonl"} < look.files(run)


def test_a_cell_without_curves_still_shows_its_outcome(look, study, mirrored):
    cell = card(study, state="done")
    end(cell, 3)
    mirrored(cell)
    [run] = look.runs(study)
    assert run.data.metrics["test/accuracy"] == 99.0


@pytest.mark.parametrize(
    ("state", "status"), [("failed", "FAILED"), ("diverged", "FAILED"), ("pruned", "KILLED"), ("superseded", "KILLED")]
)
def test_how_a_cell_ended_is_its_status(look, study, mirrored, state, status):
    assert state in ENDED
    mirrored(card(study, state=state, why="the loss is nan"))
    [run] = look.runs(study)
    assert (run.info.status, run.data.tags["hqlt.status"]) == (status, state)
    assert "the loss is nan" in run.data.tags["mlflow.note.content"]


def test_a_card_knows_every_state_of_a_record():
    assert get_args(State) == get_args(record.State) == tuple(STATUS)


def test_a_cell_that_waits_has_no_run_yet(look, study, mirrored):
    mirrored(card(study, state="waiting"))
    assert look.runs(study) == []


def test_a_resumed_cell_goes_on_in_its_run(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 10)
    mirrored(cell)
    mirrored(card(study, state="failed", why="killed"))
    train(cell, 6, 15)  # from the checkpoint at step 5
    mirrored(cell)
    end(cell, 15)
    mirrored(card(study, state="done"))
    [run] = look.runs(study)
    assert look.steps(study) == list(range(1, 16))
    assert run.info.status == "FINISHED"
    history = look.client.get_metric_history(run.info.run_id, "cost/seconds")
    assert len(history) == 1


def test_a_crash_after_sending_and_before_noting_repeats_nothing(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 5)
    mirrored(cell)
    before = (cell.folder / FILE).read_text()
    with Spool(cell.folder) as spool:
        spool.add(6, {"train/loss": math.nan, "valid/accuracy": math.inf})
    train(cell, 7, 1500)
    mirrored(cell)
    (cell.folder / FILE).write_text(before)  # as if the note had never been written
    train(cell, 1501, 1505)
    mirrored(cell)
    assert look.steps(study) == look.steps(study, "valid/accuracy") == list(range(1, 1506))


def test_a_run_whose_id_was_lost_is_found_by_its_tags(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 5)
    mirrored(cell)
    (cell.folder / FILE).unlink()
    train(cell, 6, 7)
    mirrored(cell)
    assert len(look.runs(study)) == 1
    assert look.steps(study) == list(range(1, 8))


def test_a_note_that_cannot_be_read_counts_for_nothing(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 5)
    mirrored(cell)
    (cell.folder / FILE).write_text("{")
    mirrored(cell)
    assert look.steps(study) == list(range(1, 6))


def test_a_deleted_database_is_rebuilt_from_the_folders(look, study, mirrored, tracker):
    cells = [card(study, key, "done") for key in ("abc", "def")]
    for cell in cells:
        train(cell, 1, 5)
        end(cell, 5)
    mirrored(*cells)
    tracker.database.unlink()
    shutil.rmtree(tracker.artifacts)
    mirrored(*cells)
    assert len(look.runs(study)) == 2 and len(look.runs(study, "study")) == 1
    for cell in cells:
        assert look.steps(study, key=cell.key) == list(range(1, 6))
    assert "outcome.json" in look.files(look.runs(study)[0])
    assert "experiment.yaml" in look.files(look.runs(study, "study")[0])


def test_two_studies_share_a_database(look, study, tracker, tmp_path):
    other = study_named("which_mixer", tmp_path)
    for one in (study, other):
        cell = card(one, "same")
        train(cell, 1, 3)
        assert catch_up(tracker, one, [cell]) is None
    for one in (study, other):
        assert look.steps(one, key="same") == [1, 2, 3]
    assert read_sent(study.folder).experiment != read_sent(other.folder).experiment


def test_names_that_mlflow_refuses_are_sent_cleaned(look, study, mirrored):
    odd = ["acc,none", "a@b[0]", "/lead", "a//b", "../up", ".", "", "x" * 300, "gr\u00f6\u00dfe", "trail/"]
    cell = card(study, axes={"layers[0].mixer": "sum", "lr": "x" * 9000})
    with Spool(cell.folder) as spool:
        spool.add(1, dict.fromkeys(odd, 1.0))
        spool.add(2, {"train/loss": 1.0})
    mirrored(cell)
    [run] = look.runs(study)
    assert {clean(name) for name in odd} <= set(run.data.metrics)
    assert look.steps(study) == [2]
    assert run.data.params["layers_0_.mixer"] == "sum"


def test_a_renamed_arm_changes_the_tag_and_stops_nothing(look, study, mirrored):
    mirrored(card(study, arm="old"))
    mirrored(card(study, arm="new"))
    [run] = look.runs(study)
    assert run.data.tags["hqlt.arm"] == "new"


def test_what_was_put_into_the_bin_comes_back(look, study, mirrored):
    cell = card(study)
    train(cell, 1, 3)
    mirrored(cell)
    look.client.delete_run(look.runs(study)[0].info.run_id)
    look.client.delete_experiment(read_sent(study.folder).experiment)
    mirrored(cell)
    assert look.steps(study) == [1, 2, 3]


def test_nothing_new_costs_no_call_per_cell(study, mirrored, tracker):
    cells = [card(study, str(number), "done") for number in range(3)]
    mirrored(*cells)
    written = tracker.database.stat().st_mtime_ns
    mirrored(*cells)
    assert tracker.database.stat().st_mtime_ns == written


def test_a_point_of_every_step_is_there_once(look, study, mirrored):
    cell = card(study)
    for last in (3, 7, 20):  # several rounds
        train(cell, last - 2, last)
        mirrored(cell)
    assert twice(look.steps(study)) == []
    assert json.loads((cell.folder / FILE).read_text())["offset"] == (cell.folder / "metrics.jsonl").stat().st_size
