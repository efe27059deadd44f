"""Cached plan of a study: it equals a newly built plan, or it is not used."""

import json
import shutil
import subprocess
import sys

import pytest

from hqlt_lab import api
from hqlt_lab.experiment.load_experiment import load_experiment, validate_experiment
from hqlt_lab.registry import find_factory, load_components, temporary_components
from hqlt_lab.rundir.metrics import MetricsWriter
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.plan.plan_cache import list_data_folders
from tests.issues import raises_issue
from tests.tasks.small_corpus import prepare_small_corpus

from .conftest import FAULTY, TINY

GRID = """
arms: {a: {}, b: {model.mixer: scalar}}
cross: {model.timing.window: [2, 4]}
tune: {train.lr: [1e-2, 1e-3]}
seeds: 2
"""


@pytest.fixture
def study(lab):
    """A study of 16 cells, of which those of one arm at one seed are trained, with its cached plan."""
    experiment = lab.experiment(GRID)
    lab.run(experiment, only=["arm=a,seed=0,window=2"])
    api.read_status(experiment.file, runs=lab.runs)
    return lab


def read_status(study, **options):
    return api.read_status(study.folder / "tiny.yaml", runs=study.runs, **options)


def plan_file(study):
    return study.runs / "studies/tiny/plan.json"


@pytest.mark.parametrize("only", [(), ("arm=b",), ("window=4", "seed=1"), ("lr=0.01",)])
def test_status_from_the_cached_plan_equals_status_from_a_new_plan(study, only):
    from_cache = read_status(study, only=only)
    plan_file(study).unlink()
    assert from_cache == read_status(study, only=only)
    assert len(from_cache.records) == {(): 16, ("arm=b",): 8, ("window=4", "seed=1"): 4}.get(only, 8)


def test_reading_the_status_imports_neither_torch_nor_optuna(study):
    script = (
        "import sys; from hqlt_lab import api; "
        f"status = api.read_status({str(study.folder / 'tiny.yaml')!r}, runs={str(study.runs)!r}); "
        "print(len(status.records), sorted({'torch', 'optuna'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "16 []\n"


def test_status_command_imports_neither_torch_nor_optuna(study):
    script = (
        "import sys; from hqlt_lab.cli.app import app; app(standalone_mode=False); "
        "print(sorted({'torch', 'optuna'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, "status", str(study.folder / "tiny.yaml"), "--runs", str(study.runs)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 1 + 16 + 2 and lines[-1] == "[]"  # header, cells, counts, modules


def test_first_run_of_a_study_caches_its_plan(lab):
    file = lab.experiment("seeds: 1").file
    assert len(api.read_status(file, runs=lab.runs).records) == 1
    assert not lab.runs.exists()  # a command that only reads creates no study
    api.run(file, runs=lab.runs, tracking=f"sqlite:///{lab.folder}/mlflow.db")
    assert json.loads(plan_file(lab).read_text())["fingerprint"]


def test_filter_without_a_match_is_an_error_with_a_cached_plan_too(study):
    with raises_issue("--only", "unknown_label_value"):
        read_status(study, only=["arm=c"])


def test_changed_experiment_is_planned_again(study):
    (study.folder / "tiny.yaml").write_text(TINY + GRID.replace("seeds: 2", "seeds: 3"))
    assert len(read_status(study).records) == 24
    assert len(read_status(study, overrides=["seeds=1"]).records) == 8
    assert len(read_status(study).records) == 24


def test_malicious_cached_plan_is_not_used(study):
    expected, data = read_status(study), json.loads(plan_file(study).read_text())
    for change in (
        {"cells": [["../../elsewhere", 0, 0, 0]]},
        {"arms": [["\x1b[2J", {}]] * 4},
        {"retries": "many"},
        {"points": [5, 5]},
    ):
        plan_file(study).write_text(json.dumps(data | change))
        assert read_status(study) == expected


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"fingerprint": null}', "[" * 100_000])
def test_damaged_cached_plan_is_rewritten(study, text):
    expected = read_status(study)
    plan_file(study).write_text(text)
    assert read_status(study) == expected
    assert json.loads(plan_file(study).read_text())["fingerprint"]


def test_plan_with_external_components_is_not_cached(lab, tmp_path):
    """An external component may import anything, so the fingerprint of a plan with it would be incomplete."""
    component_file = tmp_path / "mine.py"
    component_file.write_text(FAULTY.read_text())
    with temporary_components():
        load_components(component_file)
        experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
        lab.run(experiment)
        (record,) = read_status(lab).records
    assert record.state == "done" and not plan_file(lab).exists()


def test_plan_of_a_task_whose_data_are_not_named_is_not_cached(study, monkeypatch):
    """The cell keys depend on the data, which the fingerprint does not cover."""
    plan_file(study).unlink()
    monkeypatch.setattr(find_factory("task", "parity"), "has_data", True)
    read_status(study)
    assert find_factory("task", "language").has_data and not plan_file(study).exists()


LANGUAGE = """
question: Which data?
task: {name: language, length: 8, eval_size: 4, data: DATA}
measure: {select: valid/loss, direction: minimize, report: [test/loss]}
model: {width: 8, heads: 2, layers: 1, mlp_width: 8, timing: {name: synchronous, window: 4}}
seeds: 1
"""


def test_cached_plan_of_a_language_study_follows_its_data(lab):
    data = prepare_small_corpus(lab.folder / "words")
    (lab.folder / "tiny.yaml").write_text(LANGUAGE.replace("DATA", str(data)))
    plan_file(lab).parent.mkdir(parents=True)
    (record,) = read_status(lab).records
    cached_plan = plan_file(lab).read_bytes()
    assert read_status(lab).records == [record] and plan_file(lab).read_bytes() == cached_plan
    shutil.rmtree(data)
    prepare_small_corpus(data, documents=200)
    (other_record,) = read_status(lab).records
    assert other_record.key != record.key and plan_file(lab).read_bytes() != cached_plan


@pytest.mark.parametrize(
    ("config", "folders"),
    [
        ({"task": {"name": "parity"}}, []),
        ({"task": {"name": "language", "data": "a"}, "arms": {"b": {"task.data": "b"}}}, ["a", "b"]),
        ({"cross": {"task": [{"name": "language", "data": "a"}, "parity"], "task.data": ["b", "c"]}}, ["a", "b", "c"]),
        ({"task": {"data": "data/${task.name}"}}, None),
    ],
)
def test_data_folders_are_found_in_all_sections(config, folders):
    assert list_data_folders(config) == folders


def test_plan_of_a_file_that_changes_while_it_is_planned_is_not_used_for_the_new_content(study, monkeypatch):
    file = study.folder / "tiny.yaml"
    file.write_text(TINY + GRID.replace("seeds: 2", "seeds: 3"))

    def validate_then_change_file(*args):
        experiment = validate_experiment(*args)
        file.write_text(TINY + GRID.replace("seeds: 2", "seeds: 1"))
        return experiment

    with monkeypatch.context() as patch:
        patch.setattr("hqlt_lab.api.studies.validate_experiment", validate_then_change_file)
        assert len(read_status(study).records) == 24
    assert len(read_status(study).records) == 8


def test_cached_plan_is_neither_written_nor_used_if_a_source_is_newer_than_the_process(study, monkeypatch):
    plan_file(study).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("hqlt_lab.study.plan.plan_cache.PROCESS_START", 0.0)
        assert len(read_status(study).records) == 16
        assert not plan_file(study).exists()
    read_status(study)
    assert plan_file(study).exists()


def test_cached_plan_without_a_fingerprint_is_never_used(study, monkeypatch):
    data = json.loads(plan_file(study).read_text()) | {"fingerprint": None, "cells": []}
    plan_file(study).write_text(json.dumps(data))
    monkeypatch.setattr("hqlt_lab.study.plan.plan_cache.list_entry_points", lambda: ["a package"])
    assert len(read_status(study).records) == 16


def test_plan_of_a_search_is_not_cached(lab):
    lab.experiment("arms: {a: {}}\ntune: {train.lr: {low: 1e-3, high: 1e-2, trials: 2}}\nseeds: 1")
    assert len(read_status(lab).records) == 2 * 3
    assert not plan_file(lab).exists()


def test_reading_the_status_of_a_study_that_was_never_run_creates_nothing(lab):
    lab.experiment(GRID)
    assert {record.state for record in read_status(lab).records} == {"waiting"}
    assert not lab.runs.exists()


def test_status_of_a_running_cell_has_its_step(study):
    store = StudyStore(study.runs, "tiny")
    (waiting, *_) = [record for record in read_status(study).records if record.state == "waiting"]
    experiment = load_experiment(study.folder / "tiny.yaml")
    with store.session():
        from hqlt_lab.study.run_study import open_plan

        plan = open_plan(experiment, store)
        cell_attributes = {"key": waiting.key, "arm": waiting.arm.to_dict(), "seed": waiting.seed}
        cell_attributes |= {"point": {}, "is_reported": True, "code": {}}
        name = plan.study_name_by_arm[waiting.arm]
        plan.ledger.begin_attempt(name, plan.ledger.ask_trial(name, {}), cell_attributes)
        with MetricsWriter(waiting.folder) as metrics:
            for step in range(1, 5):
                metrics.write_row(step, {"train/loss": 1.0})
        (running,) = [record for record in read_status(study).records if record.key == waiting.key]
    assert (running.state, running.step) == ("running", 4)
