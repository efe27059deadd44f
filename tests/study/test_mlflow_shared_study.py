"""A study shared by several processes is one study in MLflow, whichever process ends first."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from hqlt_lab import api
from hqlt_lab.study.study_callback import StudyCallback

pytestmark = pytest.mark.slow
CELLS = "select status from runs join tags using (run_uuid) where tags.key = 'hqlt.kind' and tags.value = 'cell'"


class RunAtStart(StudyCallback):
    """Calls a function once the study is planned and before its first cell is claimed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def on_study_start(self, *args: object) -> None:
        self.function()


def test_mlflow_has_the_cells_that_a_peer_trained_during_the_run(lab, postgres, monkeypatch):
    """The peer ends before anything was sent to MLflow."""
    monkeypatch.setenv("HQLT_STORE", postgres.create_database())
    monkeypatch.setattr(api.studies, "SYNC_TIMEOUT", 120.0)
    experiment = lab.experiment("seeds: 2")
    result = api.run(experiment.file, runs=lab.runs, callback=RunAtStart(lambda: lab.run(experiment)))
    assert result.complete and result.sync_warning is None
    with closing(sqlite3.connect(lab.runs / "mlflow.db")) as database:
        assert database.execute(CELLS).fetchall() == [("FINISHED",), ("FINISHED",)]
