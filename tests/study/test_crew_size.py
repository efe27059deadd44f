"""How many are hired, and for what: all cells that may come to us, not only those that wait at this moment.

The same for workers of this machine: `test_search`.
"""

import sys
from types import SimpleNamespace

import pytest

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.study.hands import Hands
from hqlt_lab.study.run import Choice, prepare
from hqlt_lab.study.store import Store

SEARCH = "tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 1}}\ntune_seeds: 1\nseeds: 4"


@pytest.fixture
def ray(monkeypatch) -> str:
    """A launcher for a cluster that this process has joined, with room for eight cells."""
    nodes = [{"Alive": True, "Resources": {"CPU": 8.0}}]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes))
    return "launcher={name: ray}"


def hired(lab, experiment: Experiment, **choice: int) -> Hands:
    store = Store(lab.runs, experiment.name)
    with store.owned():
        return prepare(experiment, store, Choice(**choice)).crew


def test_ray_has_workers_for_the_cells_that_a_search_leads_to(lab, ray):
    experiment = lab.experiment(SEARCH, overrides=(ray,))
    assert hired(lab, experiment).workers == 1 + 4
    assert hired(lab, experiment, limit=2).workers == 2


def test_ray_has_workers_for_the_cells_that_others_may_leave_to_us(lab, join, ray):
    experiment = lab.experiment("seeds: 3", overrides=(ray,))
    theirs = join(experiment)
    assert theirs.claim() and theirs.claim()
    assert hired(lab, experiment).workers == 3


def test_a_job_has_room_for_the_cells_that_others_may_leave_to_us(lab, join):
    experiment = lab.experiment("seeds: 1", overrides=("launcher={name: slurm}", "trainer.devices=2"))
    join(experiment).claim()
    assert '#SBATCH --ntasks-per-node="2"\n' in hired(lab, experiment).text
