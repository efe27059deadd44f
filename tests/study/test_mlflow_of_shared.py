"""A study that several programs share is one study in MLflow, whoever ends first."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from hqlt_lab import api
from hqlt_lab.study.view import View

pytestmark = pytest.mark.slow
CELLS = "select status from runs join tags using (run_uuid) where tags.key = 'hqlt.kind' and tags.value = 'cell'"


class Meanwhile(View):
    """Lets something happen when we have looked at everything and are about to begin."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens = happens

    def begin(self, *told: object) -> None:
        self.happens()


def test_mlflow_has_what_others_trained_while_a_run_went_on(lab, postgres, monkeypatch):
    """They ended before MLflow took anything in."""
    monkeypatch.setenv("HQLT_STORE", postgres.database())
    monkeypatch.setattr(api.studies, "PATIENCE", 120.0)
    experiment = lab.experiment("seeds: 2")
    done = api.run(experiment.file, runs=lab.runs, view=Meanwhile(lambda: lab.run(experiment)))
    assert done.complete and done.untracked is None
    with closing(sqlite3.connect(lab.runs / "mlflow.db")) as database:
        assert database.execute(CELLS).fetchall() == [("FINISHED",), ("FINISHED",)]
