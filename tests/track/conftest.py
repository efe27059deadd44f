"""A real MLflow database, made once and copied, and a study whose cells are only folders."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.track.card import CellCard, State, StudyCard
from hqlt_lab.track.courier import catch_up
from hqlt_lab.track.spool import Spool
from hqlt_lab.track.store import Store, Tracker, default_tracker
from hqlt_lab.train.outcome import Outcome


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables."""
    tracker = default_tracker(tmp_path_factory.mktemp("mlflow"))
    Store(tracker).open()
    assert tracker.database is not None
    return tracker.database


@pytest.fixture
def tracker(empty_database: Path, tmp_path: Path) -> Tracker:
    made = default_tracker(tmp_path / "runs")
    assert made.database is not None
    made.database.parent.mkdir(parents=True)
    shutil.copy(empty_database, made.database)
    return made


@pytest.fixture
def study(tmp_path: Path) -> StudyCard:
    return study_named("which_timing", tmp_path)


def study_named(name: str, place: Path, **changes: Any) -> StudyCard:
    told: dict[str, Any] = {
        "name": name,
        "question": "Which timing keeps the state?",
        "folder": place / "runs" / name,
        "axes": ["mixer", "lr"],
        "select": "valid/accuracy",
        "report": ["test/accuracy"],
        "config": "question: Which timing keeps the state?\n",
        "provenance": {"git": {"commit": "0" * 40, "dirty": True, "diff": "- old\n+ new\n"}, "versions": {}},
    }
    return StudyCard(**(told | changes))


def card(study: StudyCard, key: str = "abc", state: State = "running", **changes: Any) -> CellCard:
    folder = study.folder / "cells" / key
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"title": f"synchronous, seed={key}", "arm": "synchronous", "seed": 0}
    told |= {"axes": {"mixer": "sum", "lr": "0.001"}, "task": {"name": "parity", "train_length": [3, 40]}}
    return CellCard(**(told | {"key": key, "folder": folder, "state": state} | changes))


def train(cell: CellCard, first: int, last: int) -> None:
    """What a worker does between two steps, as far as this room can tell."""
    with Spool(cell.folder) as spool:
        for step in range(first, last + 1):
            spool.add(step, {"train/loss": 1 / step, "valid/accuracy": float(step)})


def end(cell: CellCard, step: int) -> None:
    metrics, sizes = {"test/accuracy": 99.0}, {"parameters": 7, "state_bytes": 640, "flops_per_token": 2.5e3}
    made = Outcome(status="done", step=step, metrics=metrics, seconds=3.0, tokens_per_second=1e4, **sizes)
    made.write(cell.folder)


@dataclass
class Looker:
    """MLflow as a user sees it."""

    tracker: Tracker

    def __post_init__(self) -> None:
        self.client = Store(self.tracker).open()

    def runs(self, study: StudyCard, kind: str = "cell") -> list[Any]:
        found = self.client.get_experiment_by_name(study.name)
        assert found is not None
        return list(self.client.search_runs([found.experiment_id], f"tags.`hqlt.kind` = '{kind}'"))

    def steps(self, study: StudyCard, metric: str = "train/loss", key: str = "abc") -> list[int]:
        """All steps of a metric, as often as they are stored."""
        [run] = [run for run in self.runs(study) if run.data.tags["hqlt.cell"] == key]
        return sorted(point.step for point in self.client.get_metric_history(run.info.run_id, metric))

    def files(self, run: Any, folder: str | None = None) -> set[str]:
        return {file.path for file in self.client.list_artifacts(run.info.run_id, folder)}


@pytest.fixture
def look(tracker: Tracker) -> Looker:
    return Looker(tracker)


@pytest.fixture
def mirrored(tracker: Tracker, study: StudyCard) -> Callable[..., None]:
    """Send these cells, and be sure that all is there."""

    def send(*cards: CellCard) -> None:
        assert catch_up(tracker, study, cards) is None

    return send


def until(true: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def twice(items: list[int]) -> list[int]:
    return [item for item, times in Counter(items).items() if times > 1]
