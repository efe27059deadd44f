"""A real MLflow database, created once and copied, and a study whose cells are only folders."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.rundir.cell_state import CellState
from hqlt_lab.rundir.metrics import MetricsWriter
from hqlt_lab.rundir.outcome import Outcome
from hqlt_lab.track.mlflow_sync import sync_study
from hqlt_lab.track.study_description import CellInfo, StudyInfo
from hqlt_lab.track.tracking_store import StoreConnection, TrackingStore, default_tracking_store


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Created once per session, because creating MLflow's tables takes seconds."""
    tracking_store = default_tracking_store(tmp_path_factory.mktemp("mlflow"))
    StoreConnection(tracking_store).open_client()
    assert tracking_store.sqlite_path is not None
    return tracking_store.sqlite_path


@pytest.fixture
def tracking_store(empty_database: Path, tmp_path: Path) -> TrackingStore:
    store = default_tracking_store(tmp_path / "runs")
    assert store.sqlite_path is not None
    store.sqlite_path.parent.mkdir(parents=True)
    shutil.copy(empty_database, store.sqlite_path)
    return store


@pytest.fixture
def study(tmp_path: Path) -> StudyInfo:
    return make_study("which_timing", tmp_path)


def make_study(name: str, root: Path, **changes: Any) -> StudyInfo:
    settings: dict[str, Any] = {
        "name": name,
        "question": "Which timing keeps the state?",
        "folder": root / "runs" / name,
        "axes": ["mixer", "lr"],
        "select": "valid/accuracy",
        "report": ["test/accuracy"],
        "config": "question: Which timing keeps the state?\n",
        "provenance": {"git": {"commit": "0" * 40, "dirty": True, "diff": "- old\n+ new\n"}, "versions": {}},
    }
    return StudyInfo(**(settings | changes))


def make_cell(study: StudyInfo, key: str = "abc", state: CellState = "running", **changes: Any) -> CellInfo:
    folder = study.folder / "cells" / key
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"title": f"synchronous, seed={key}", "arm": "synchronous", "seed": 0}
    settings |= {"axes": {"mixer": "sum", "lr": "0.001"}, "task": {"name": "parity", "train_length": [3, 40]}}
    return CellInfo(**(settings | {"key": key, "folder": folder, "state": state} | changes))


def write_points(cell: CellInfo, first: int, last: int) -> None:
    """Write metrics of these steps, as a worker does during training."""
    with MetricsWriter(cell.folder) as writer:
        for step in range(first, last + 1):
            writer.write_row(step, {"train/loss": 1 / step, "valid/accuracy": float(step)})


def write_outcome(cell: CellInfo, step: int) -> None:
    metrics, sizes = {"test/accuracy": 99.0}, {"parameters": 7, "state_bytes": 640, "flops_per_token": 2.5e3}
    outcome = Outcome(status="done", step=step, metrics=metrics, seconds=3.0, tokens_per_second=1e4, **sizes)
    outcome.write(cell.folder)


@dataclass
class MlflowReader:
    """Reads runs, metrics and artifacts from MLflow."""

    tracking_store: TrackingStore

    def __post_init__(self) -> None:
        self.client = StoreConnection(self.tracking_store).open_client()

    def search_runs(self, study: StudyInfo, kind: str = "cell") -> list[Any]:
        experiment = self.client.get_experiment_by_name(study.name)
        assert experiment is not None
        return list(self.client.search_runs([experiment.experiment_id], f"tags.`hqlt.kind` = '{kind}'"))

    def metric_steps(self, study: StudyInfo, metric: str = "train/loss", key: str = "abc") -> list[int]:
        """Return all stored steps of a metric, including duplicates."""
        [run] = [run for run in self.search_runs(study) if run.data.tags["hqlt.cell"] == key]
        return sorted(point.step for point in self.client.get_metric_history(run.info.run_id, metric))

    def artifact_names(self, run: Any, folder: str | None = None) -> set[str]:
        return {file.path for file in self.client.list_artifacts(run.info.run_id, folder)}


@pytest.fixture
def reader(tracking_store: TrackingStore) -> MlflowReader:
    return MlflowReader(tracking_store)


@pytest.fixture
def send_cells(tracking_store: TrackingStore, study: StudyInfo) -> Callable[..., None]:
    """A function that sends cells and checks that everything was sent."""

    def send(*cells: CellInfo) -> None:
        assert sync_study(tracking_store, study, cells) is None

    return send


def wait_until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait for a condition to become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def find_duplicates(items: list[int]) -> list[int]:
    return [item for item, count in Counter(items).items() if count > 1]
