"""The plan that a study keeps for those who only look: the same as the one that is made anew, or not used."""

import json
import subprocess
import sys

import pytest

from hqlt_lab import api
from hqlt_lab.errors import HqltError
from hqlt_lab.registry import include, temporarily
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


def test_a_kept_plan_leads_out_of_no_folder(study):
    whole, told = looked(study), json.loads(kept(study).read_text())
    told["places"][0][0] = "../../elsewhere"
    kept(study).write_text(json.dumps(told))
    assert looked(study) == whole


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sign": null}', "[" * 100_000])
def test_a_kept_plan_that_is_damaged_is_made_anew(study, text):
    whole = looked(study)
    kept(study).write_text(text)
    assert looked(study) == whole
    assert json.loads(kept(study).read_text())["sign"]


def test_another_part_is_planned_anew(lab, tmp_path):
    part = tmp_path / "mine.py"
    part.write_text(FAULTY.read_text())
    with temporarily():
        include(part)
        experiment = lab.experiment("arms: {mine: {model.mixer: faulty}}\nseeds: 1")
        lab.run(experiment)
        (record,) = looked(lab).records
        assert record.state == "done" and not record.changed
        sign = json.loads(kept(lab).read_text())["sign"]
    part.write_text(FAULTY.read_text() + "\n# other\n")
    with temporarily():
        include(part)
        assert looked(lab).records[0].changed == ("mixer faulty",)
        assert json.loads(kept(lab).read_text())["sign"] != sign


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
    experiment = api.load_experiment(study.folder / "tiny.yaml")
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
