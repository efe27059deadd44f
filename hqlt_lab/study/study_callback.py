"""Callback interface of a study: hooks that the coordinator calls as cells start, report metrics and end."""

from collections.abc import Mapping

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.eta import EtaEstimator, Workload
from hqlt_lab.study.ledger.cell_record import CellRecord


class StudyCallback:
    """Base class whose hooks do nothing; override the ones you need."""

    def on_study_start(
        self, eta: EtaEstimator, num_settled: int, num_cells: int, unsuccessful: Mapping[str, int]
    ) -> None:
        """Called once before the first cell, with the number of cells already settled and of all cells.

        `unsuccessful`: how many of the settled cells failed, and how many diverged, by state.
        """

    def on_cell_start(self, record: CellRecord, cell: Cell) -> None:
        """Called when an attempt at a cell begins."""

    def on_metrics(self, key: str, step: int, metrics: dict[str, float]) -> None:
        """Called when a running cell reports metrics."""

    def on_cell_end(self, record: CellRecord) -> None:
        """Called when an attempt has ended; the cell may still wait for another attempt."""

    def on_look(self, text: str, num_added: int, waiting: Mapping[str, Workload]) -> None:
        """Called when verdicts were computed that decide which arms get more seeds, described by `text`.

        `num_added`: the number of cells that the study has more than before; `waiting`: those to train here, by key.
        """

    def on_interrupt(self) -> None:
        """Called at the first stop request (Ctrl-C or SIGTERM) while cells are running."""

    def on_evaluation_progress(self, title: str, done: int, total: int) -> None:
        """Called during an lm-eval task on a trained cell, with the number of finished rows and of all rows."""

    def on_sync_progress(self, sent: int, total: int) -> None:
        """Called about every second while the study waits for MLflow at its end, with the cells sent and all cells."""

    def on_tick(self) -> None:
        """Called by the main loop about every quarter of a second."""
