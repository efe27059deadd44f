"""Progress of a study in a Jupyter notebook: one output that is updated in place.

    3 of 8 cells finished, 2 running, about 1 min left
    mine, seed 1: 120/200  loss 0.3121  valid 71.9
    sum, seed 1: 80/200  loss 0.5230

Lines on cells that ended with warnings or without a result stay below.
"""

import importlib
import sys
import time
from collections.abc import Mapping
from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.eta import EtaEstimator, Workload
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.progress_tracker import ProgressTracker, cell_title, format_end_state
from hqlt_lab.study.study_callback import StudyCallback

UPDATE_INTERVAL = 0.5  # seconds; each update is a message to the browser
MAX_NOTES = 20  # lines below the running cells


def make_default_callback() -> StudyCallback:
    """Return the callback of a study that was started without one: a display in a notebook, else no output."""
    return NotebookProgress() if is_notebook() else StudyCallback()


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which can update its outputs."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(ProgressTracker):
    """Callback that displays the progress of a study in the output of the notebook cell."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = None  # of the output
        self.text, self.updated_at = "", 0.0
        self.notes: list[str] = []
        self.current_evaluation = ""

    def on_study_start(
        self, eta: EtaEstimator, num_settled: int, num_cells: int, unsuccessful: Mapping[str, int]
    ) -> None:
        super().on_study_start(eta, num_settled, num_cells, unsuccessful)
        self.show(self.format_start())

    def on_cell_start(self, record: CellRecord, cell: Cell) -> None:
        super().on_cell_start(record, cell)
        self.on_tick()

    def on_cell_end(self, record: CellRecord) -> None:
        super().on_cell_end(record)
        if record.state != "done":
            self.notes.append(f"{cell_title(record)}: {format_end_state(record)}. {record.why}".rstrip())
        self.notes += [f"{cell_title(record)}: {warning}" for warning in record.warnings]
        self.show(self.format_progress())

    def on_look(self, text: str, num_added: int, waiting: Mapping[str, Workload]) -> None:
        super().on_look(text, num_added, waiting)
        self.add_note(text)

    def on_interrupt(self) -> None:
        self.add_note("Stopping after every cell has saved a checkpoint. Interrupt again to stop at once.")

    def on_evaluation_progress(self, title: str, done: int, total: int) -> None:
        if title != self.current_evaluation:
            self.current_evaluation = title
            self.add_note(f"evaluating {title} ({total} rows)")

    def on_tick(self) -> None:
        if time.monotonic() - self.updated_at > UPDATE_INTERVAL:
            self.show(self.format_progress())

    def add_note(self, note: str) -> None:
        self.notes.append(note)
        self.show(self.format_progress())

    def format_progress(self) -> str:
        """Return the summary, a line per running cell, and the last notes."""
        running = [
            f"{cell_title(record)}: {self.eta.running[key].step}/{cell.train.steps}  {self.format_latest_metrics(key)}"
            for key, (record, cell) in self.running_cells.items()
        ]
        is_over = not running and not self.eta.waiting and not self.eta.pending
        summary = self.format_settled() if is_over else self.format_summary()
        return "\n".join(line.rstrip() for line in (summary, *running, *self.notes[-MAX_NOTES:]))

    def show(self, text: str) -> None:
        """Display a text in place of the previous one."""
        if text == self.text:
            return
        self.text, self.updated_at = text, time.monotonic()
        if self.handle is None:
            display: Any = importlib.import_module("IPython.display").display
            self.handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self.handle.update({"text/plain": text}, raw=True)
