"""The SQLite database of MLflow, in folders with any name."""

from pathlib import Path

import pytest

from hqlt_lab.track.mlflow_sync import sync_study
from hqlt_lab.track.tracking_store import default_tracking_store, sqlite_uri

from .conftest import MlflowReader, make_cell, make_study, write_outcome, write_points

SPECIAL_NAMES = ["runs", "it's", 'a "b"', "a%20b", "what?", "100%", "a#b;c", "x%2Fy?mode=ro"]


@pytest.mark.parametrize("name", SPECIAL_NAMES)
def test_the_path_of_a_database_is_that_of_its_uri(tmp_path, name):
    from sqlalchemy.engine import make_url

    store = default_tracking_store(tmp_path / name)
    assert store.sqlite_path == tmp_path / name / "mlflow.db"
    assert make_url(store.uri).database == str(store.sqlite_path) and not make_url(store.uri).query


def test_the_uri_of_a_usual_path_is_not_encoded(tmp_path):
    assert sqlite_uri(Path("/data/my runs/mlflow.db")) == "sqlite:////data/my runs/mlflow.db"


def test_a_study_in_a_folder_with_special_characters_is_tracked_and_leaves_nothing_beside_it(tmp_path):
    root = tmp_path / 'it\'s "a%20b" what? 100%#'
    store, study = default_tracking_store(root / "runs"), make_study("which_timing", root)
    cell = make_cell(study, state="done")
    write_points(cell, 1, 3)
    write_outcome(cell, 3)
    (root / "runs/mlflow.db.4711.making").write_bytes(b"of a process that was killed")
    assert sync_study(store, study, [cell]) is None
    reader = MlflowReader(store)
    [run] = reader.search_runs(study)
    assert reader.metric_steps(study) == [1, 2, 3]
    assert "outcome.json" in reader.artifact_names(run)
    assert len(list((root / "runs/artifacts").rglob("outcome.json"))) == 1
    assert [file.name for file in tmp_path.iterdir()] == [root.name]
    assert not list((root / "runs").glob("*.making"))
