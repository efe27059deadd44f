"""Studies of cells that train in a moment."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.experiment import Experiment, load
from hqlt_lab.registry import include, temporarily
from hqlt_lab.study.coordinator import Coordinator
from hqlt_lab.study.crew import Crew
from hqlt_lab.study.pace import Pace
from hqlt_lab.study.record import Record
from hqlt_lab.study.run import Choice, open_agenda, prepare, train
from hqlt_lab.study.store import Store
from hqlt_lab.study.view import View

FAULTY = Path(__file__).parent / "faulty.py"
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


class Watcher(View):
    """A view that remembers."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, int]] = []
        self.ends: list[Record] = []
        self.workers = 0
        self.expected = 0

    def begin(self, pace: Pace, settled: int, total: int) -> None:
        self.workers, self.expected = pace.workers, len(pace.waiting) + len(pace.later)

    def started(self, record: Record, cell: Cell) -> None:
        self.starts.append((record.arm, record.seed))

    def settled(self, record: Record) -> None:
        self.ends.append(record)


class Nobody:
    """A tracker that keeps nothing."""

    def tell(self, card: Any) -> None: ...


class Lab:
    """Writes experiment files and runs them in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"

    def experiment(self, text: str, name: str = "tiny", overrides: tuple[str, ...] = ()) -> Experiment:
        file = self.folder / f"{name}.yaml"
        file.write_text(TINY + text)
        return load(file, overrides)

    def run(self, experiment: Experiment, **choice: Any) -> Watcher:
        """Train what waits."""
        watcher, store = Watcher(), Store(self.runs, experiment.name)
        with store.owned():
            train(prepare(experiment, store, Choice(**choice)), choice.get("limit"), watcher, Nobody())
        return watcher

    def records(self, experiment: Experiment) -> list[Record]:
        return open_agenda(experiment, Store(self.runs, experiment.name)).records()

    def states(self, experiment: Experiment) -> dict[str, int]:
        return dict(Counter(record.state for record in self.records(experiment)))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def faulty():
    with temporarily():
        include(FAULTY)
        yield


@pytest.fixture
def join(lab: Lab, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Coordinator]]:
    """One more who shares a study, in this process, with room for one cell and one GPU."""
    monkeypatch.setenv("HQLT_STORE", postgres.database())
    with ExitStack() as stack:

        def one_more(
            experiment: Experiment, view: View | None = None, gpus_of: Callable[[Cell], float] = lambda cell: 0
        ) -> Coordinator:
            store, crew = Store(lab.runs, experiment.name), Crew(1, 1, 1, gpus_of, None)
            stack.enter_context(store.owned())
            stack.callback(crew.close)
            agenda = open_agenda(experiment, store)
            return Coordinator(agenda, crew, Nobody(), view or View(), lambda place: True)

        yield one_more
