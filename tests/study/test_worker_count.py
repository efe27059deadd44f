"""Executors are sized for all cells that may become available, not only for those that wait at this moment.

`test_search` tests this for local workers.
"""

import sys
from types import SimpleNamespace

import pytest

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.study.executors._base import Executor
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.run_study import CellSelection, prepare_study

SEARCH = "tune: {train.lr: {low: 1e-4, high: 1e-1, log: true, trials: 1}}\ntune_seeds: 1\nseeds: 4"


@pytest.fixture
def ray(monkeypatch) -> str:
    """Override for the Ray launcher, with a fake cluster on which eight cells fit."""
    nodes = [{"Alive": True, "Resources": {"CPU": 8.0}}]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes))
    return "launcher={name: ray}"


def prepared_executor(lab, experiment: Experiment, **selection: int) -> Executor:
    store = StudyStore(lab.runs, experiment.name)
    with store.session():
        return prepare_study(experiment, store, CellSelection(**selection)).executor


def test_ray_has_workers_for_the_cells_that_a_search_leads_to(lab, ray):
    experiment = lab.experiment(SEARCH, overrides=(ray,))
    assert prepared_executor(lab, experiment).workers == 1 + 4
    assert prepared_executor(lab, experiment, limit=2).workers == 2


def test_ray_has_workers_for_cells_that_peers_may_release(lab, join, ray):
    experiment = lab.experiment("seeds: 3", overrides=(ray,))
    peer = join(experiment)
    assert peer.claim_cell() and peer.claim_cell()
    assert prepared_executor(lab, experiment).workers == 3


def test_slurm_job_has_resources_for_cells_that_peers_may_release(lab, join):
    experiment = lab.experiment("seeds: 1", overrides=("launcher={name: slurm}", "trainer.devices=2"))
    join(experiment).claim_cell()
    assert '#SBATCH --ntasks-per-node="2"\n' in prepared_executor(lab, experiment).script
