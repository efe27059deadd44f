"""The plan that a study keeps for those who only look: the same as the one that is made anew, or not used."""

import json
import subprocess
import sys

import pytest

from hqlt_lab import api
from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.registry import find, include, temporarily
from hqlt_lab.study.store import Store
from hqlt_lab.track.spool import Spool

from .conftest import FAULTY, TINY

GRID = """
arms: {a: {}, b: {model.mixer: scalar}}
cross: {model.timing.window: [2, 4]}
tune: {train.lr: [1e-2, 1e-3]}
seeds: 2
"""


@pytest.fixture
def study(lab):
    """A study of 16 cells, of which one arm was trained at one seed, with the plan that it keeps."""
    experiment = lab.experiment(GRID)
    lab.run(experiment, only=["arm=a,seed=0,window=2"])
    api.status(experiment.file, runs=lab.runs)
    return lab


def looked(study, **how):
    return api.status(study.folder / "tiny.yaml", runs=study.runs, **how)


def kept(study):
    return study.runs / "studies/tiny/plan.json"


@pytest.mark.parametrize("only", [(), ("arm=b",), ("window=4", "seed=1"), ("lr=0.01",)])
def test_the_kept_plan_says_what_one_that_is_made_anew_says(study, only):
    from_kept = looked(study, only=only)
    kept(study).unlink()
    assert from_kept == looked(study, only=only)
    assert len(from_kept.records) == {(): 16, ("arm=b",): 8, ("window=4", "seed=1"): 4}.get(only, 8)


def test_a_look_loads_neither_torch_nor_optuna(study):
    looking = (
        "import sys; from hqlt_lab import api; "
        f"found = api.status({str(study.folder / 'tiny.yaml')!r}, runs={str(study.runs)!r}); "
        "print(len(found.records), sorted({'torch', 'optuna'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", looking], capture_output=True, text=True, check=True).stdout
    assert said == "16 []\n"


def test_a_word_that_nothing_has_is_told_from_the_kept_plan_too(study):
    with pytest.raises(HqltError, match="--only arm=c: there is no such value"):
        looked(study, only=["arm=c"])


def test_another_file_is_planned_anew(study):
    (study.folder / "tiny.yaml").write_text(TINY + GRID.replace("seeds: 2", "seeds: 3"))
    assert len(looked(study).records) == 24
    assert len(looked(study, change=["seeds=1"]).records) == 8
    assert len(looked(study).records) == 24


def test_a_kept_plan_from_anybody_does_no_harm(study):
    whole, told = looked(study), json.loads(kept(study).read_text())
    for hostile in (
        {"places": [["../../elsewhere", 0, 0, 0]]},
        {"arms": [["\x1b[2J", {}]] * 4},
        {"retries": "many"},
        {"points": [5, 5]},
    ):
        kept(study).write_text(json.dumps(told | hostile))
        assert looked(study) == whole


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sign": null}', "[" * 100_000])
def test_a_kept_plan_that_is_damaged_is_made_anew(study, text):
    whole = looked(study)
    kept(study).write_text(text)
    assert looked(study) == whole
    assert json.loads(kept(study).read_text())["sign"]


def test_with_parts_from_outside_no_plan_is_kept(lab, tmp_path):
    """They may import anything, and nobody sees it from outside."""
    part = tmp_path / "mine.py"
    part.write_text(FAULTY.read_text())
    with temporarily():
        include(part)
        experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
        lab.run(experiment)
        (record,) = looked(lab).records
    assert record.state == "done" and not kept(lab).exists()


def test_with_data_no_plan_is_kept(study, monkeypatch):
    """Which data there are is in the keys."""
    kept(study).unlink()
    monkeypatch.setattr(find("task", "parity"), "has_data", True)
    looked(study)
    assert find("task", "language").has_data and not kept(study).exists()


def test_a_file_that_changes_while_it_is_planned_leaves_no_plan(study, monkeypatch):
    file = study.folder / "tiny.yaml"
    file.write_text(TINY + GRID.replace("seeds: 2", "seeds: 3"))

    def saved_meanwhile(*given):
        experiment = load_experiment(*given)
        file.write_text(TINY + GRID.replace("seeds: 2", "seeds: 1"))
        return experiment

    with monkeypatch.context() as patch:
        patch.setattr("hqlt_lab.api.studies.load_experiment", saved_meanwhile)
        assert len(looked(study).records) == 24
    assert len(looked(study).records) == 8


def test_where_a_source_is_newer_than_this_process_no_plan_is_kept_or_believed(study, monkeypatch):
    kept(study).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("hqlt_lab.study.outline.BEGAN", 0.0)
        assert len(looked(study).records) == 16
        assert not kept(study).exists()
    looked(study)
    assert kept(study).exists()


def test_a_plan_without_a_sign_is_never_believed(study, monkeypatch):
    told = json.loads(kept(study).read_text()) | {"sign": None, "places": []}
    kept(study).write_text(json.dumps(told))
    monkeypatch.setattr("hqlt_lab.study.outline.installed", lambda: ["a package"])
    assert len(looked(study).records) == 16


def test_a_search_keeps_no_plan(lab):
    lab.experiment("arms: {a: {}}\ntune: {train.lr: {low: 1e-3, high: 1e-2, trials: 2}}\nseeds: 1")
    assert len(looked(lab).records) == 2
    assert not kept(lab).exists()


def test_looking_at_what_was_never_run_leaves_nothing_behind(lab):
    lab.experiment(GRID)
    assert {record.state for record in looked(lab).records} == {"waiting"}
    assert not lab.runs.exists()


def test_a_running_cell_tells_its_step(study):
    store = Store(study.runs, "tiny")
    (waiting, *_) = [record for record in looked(study).records if record.state == "waiting"]
    experiment = load_experiment(study.folder / "tiny.yaml")
    with store.owned():
        from hqlt_lab.study.run import open_agenda

        agenda = open_agenda(experiment, store)
        told = {"key": waiting.key, "arm": waiting.arm, "seed": waiting.seed, "point": {}, "counts": True, "code": {}}
        name = agenda.studies[waiting.arm]
        agenda.ledger.begin(name, agenda.ledger.ask(name, {}), told)
        with Spool(waiting.folder) as spool:
            for step in range(1, 5):
                spool.add(step, {"train/loss": 1.0})
        (running,) = [record for record in looked(study).records if record.key == waiting.key]
    assert (running.state, running.step) == ("running", 4)
