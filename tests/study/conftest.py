"""Fixtures for studies whose cells train in a second or less."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.load_experiment import Experiment, load_experiment
from hqlt_lab.registry import load_components, temporary_components
from hqlt_lab.study.coordinator import Coordinator
from hqlt_lab.study.eta import EtaEstimator
from hqlt_lab.study.executors.local_executor import LocalExecutor
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.run_study import CellSelection, open_plan, prepare_study, train_study
from hqlt_lab.study.study_callback import StudyCallback

FAULTY = Path(__file__).parent / "faulty_mixer.py"
TINY = """
question: Does it run?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model:
  {width: 8, heads: 1, layers: 1, mlp_width: 8, update_rule: {name: delta, max_beta: 2},
   timing: {name: synchronous, window: 4}, mixer: sum, positions: none}
train: {steps: 6, batch_size: 4, lr: 1e-2, valid_every: 2, checkpoint_every: 2, log_every: 1}
trainer: {accelerator: cpu}
launcher: {workers: 2, threads: 1}
"""


class RecordingCallback(StudyCallback):
    """Callback that records which cells started and ended."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, int]] = []
        self.ends: list[CellRecord] = []
        self.workers = 0
        self.expected = 0

    def on_study_start(
        self, eta: EtaEstimator, num_settled: int, num_cells: int, unsuccessful: Mapping[str, int]
    ) -> None:
        self.workers, self.expected = eta.workers, len(eta.waiting) + len(eta.pending)

    def on_cell_start(self, record: CellRecord, cell: Cell) -> None:
        self.starts.append((record.arm, record.seed))

    def on_cell_end(self, record: CellRecord) -> None:
        self.ends.append(record)


class NullSink:
    """Run sink that discards everything."""

    def enqueue(self, info: Any) -> None: ...


class StudyRunner:
    """Writes experiment files to a folder and runs them there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"

    def experiment(self, text: str, name: str = "tiny", overrides: tuple[str, ...] = ()) -> Experiment:
        file = self.folder / f"{name}.yaml"
        file.write_text(TINY + text)
        return load_experiment(file, overrides)

    def run(
        self, experiment: Experiment, callback: RecordingCallback | None = None, **selection: Any
    ) -> RecordingCallback:
        """Train the waiting cells; return the callback that recorded them."""
        callback, store = callback or RecordingCallback(), StudyStore(self.runs, experiment.name)
        with store.session():
            study = prepare_study(experiment, store, CellSelection(**selection))
            train_study(study, selection.get("limit"), callback, NullSink())
        return callback

    def records(self, experiment: Experiment) -> list[CellRecord]:
        return open_plan(experiment, StudyStore(self.runs, experiment.name)).list_records()

    def states(self, experiment: Experiment) -> dict[str, int]:
        return dict(Counter(record.state for record in self.records(experiment)))


@pytest.fixture
def lab(tmp_path: Path) -> StudyRunner:
    return StudyRunner(tmp_path)


@pytest.fixture
def faulty() -> Iterator[None]:
    """Makes the mixer `faulty` available."""
    with temporary_components():
        load_components(FAULTY)
        yield


@pytest.fixture
def join(lab: StudyRunner, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Coordinator]]:
    """Function that adds a coordinator to a shared study, in this process, with one worker and one GPU."""
    monkeypatch.setenv("HQLT_STORE", postgres.create_database())
    with ExitStack() as stack:

        def add_coordinator(
            experiment: Experiment,
            callback: StudyCallback | None = None,
            gpus_of: Callable[[Cell], float] = lambda cell: 0,
        ) -> Coordinator:
            store, executor = StudyStore(lab.runs, experiment.name), LocalExecutor(1, 1, 1, gpus_of, None)
            stack.enter_context(store.session())
            stack.callback(executor.close)
            plan = open_plan(experiment, store)
            return Coordinator(plan, executor, NullSink(), callback or StudyCallback(), lambda cell_ref: True)

        yield add_coordinator
