"""Progress of a study: cells in training, finished cells and the remaining time.

On a terminal this is a table that is updated in place; elsewhere a line per cell and one per minute.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.formatting import format_duration, pluralize_count
from hqlt_lab.study.eta import EtaEstimator, Workload
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.progress_tracker import ProgressTracker, cell_title, format_end_state

logger = logging.getLogger(__name__)

SYNC_LINE_INTERVAL = 5.0  # seconds between lines about MLflow at the end of a study
LINE_INTERVAL = 60.0  # seconds between summary lines without a terminal


class StudyProgress(ProgressTracker):
    """Callback that prints what the coordinator reports."""

    def __init__(
        self, console: Console, measure: MeasureConfig, question: str = "", warnings: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.console, self.measure = console, measure
        self.question, self.warnings = question, warnings  # printed at the start of the study
        self.live = Live(console=console, refresh_per_second=2, transient=True)
        self.last_line_time = self.last_sync_line_time = time.monotonic()
        self.current_evaluation = ""  # title of the lm-eval task in progress

    def on_study_start(
        self, eta: EtaEstimator, num_settled: int, num_cells: int, unsuccessful: Mapping[str, int]
    ) -> None:
        """Print the question, the warnings and how many cells are settled and left, and start the live table.

        All options are valid now: after an invalid one, only the error is printed.
        """
        super().on_study_start(eta, num_settled, num_cells, unsuccessful)
        if self.question:
            self.console.print(f"[bold]{escape(self.question)}[/bold]", soft_wrap=True)
        for warning in self.warnings:
            logger.warning(warning)
        self.console.print(self.format_start())
        if self.console.is_interactive and eta.waiting:
            self.live.start()

    def on_cell_end(self, record: CellRecord) -> None:
        super().on_cell_end(record)
        self.console.print(f"{self.num_settled}/{self.num_cells}  {self.format_record(record)}", soft_wrap=True)

    def format_record(self, record: CellRecord) -> str:
        """Return "synchronous, seed 0: test/normalized_accuracy 100 (42 s)", or the state and its reason."""
        title = escape(cell_title(record))
        if record.state == "done":
            # metrics of lm-eval are reported too, but only computed later
            names = [name for name in self.measure.report if name in record.metrics]
            metrics = ", ".join(f"{name} {record.metrics[name]:.4g}" for name in names)
            warnings = "".join(f" [yellow]{escape(warning)}[/yellow]" for warning in record.warnings)
            return f"{title}: {metrics} ({format_duration(record.seconds)}){warnings}"
        return f"{title}: [yellow]{format_end_state(record)}[/yellow]. {escape(record.why)}".rstrip()

    def on_look(self, text: str, num_added: int, waiting: Mapping[str, Workload]) -> None:
        super().on_look(text, num_added, waiting)
        added = f" {pluralize_count(num_added, 'cell')} added." if num_added else ""
        self.console.print(f"{text}{added}", soft_wrap=True)

    def on_evaluation_progress(self, title: str, done: int, total: int) -> None:
        """Print a line per lm-eval task, when its first rows are done."""
        self.live.stop()
        if title != self.current_evaluation:
            self.current_evaluation = title
            self.console.print(f"evaluating {title} ({total} rows)", soft_wrap=True, markup=False, highlight=False)

    def on_interrupt(self) -> None:
        self.console.print("Stopping after every cell has saved a checkpoint. Press Ctrl-C again to stop at once.")

    def on_sync_progress(self, sent: int, total: int) -> None:
        """Print how many cells MLflow has, once per SYNC_LINE_INTERVAL and unless it has all."""
        if sent < total and time.monotonic() - self.last_sync_line_time > SYNC_LINE_INTERVAL:
            self.last_sync_line_time = time.monotonic()
            self.console.print(f"Logged {sent} of {total} cells to MLflow. After Ctrl-C, the next run logs the rest.")

    def on_tick(self) -> None:
        """Update the live table, or print a summary line once per LINE_INTERVAL."""
        if self.live.is_started:
            self.live.update(self.build_table())
        elif time.monotonic() - self.last_line_time > LINE_INTERVAL:
            self.last_line_time = time.monotonic()
            self.console.print(self.format_summary())

    def build_table(self) -> Group:
        """Return a table with a row per cell in training, and the summary line below it."""
        rows = Table(box=None, pad_edge=False, show_header=False)
        for key, (record, cell) in self.running_cells.items():
            step = self.eta.running[key].step
            bar = ProgressBar(total=cell.train.steps, completed=step, width=20)
            rows.add_row(escape(cell_title(record)), bar, f"{step}/{cell.train.steps}", self.format_latest_metrics(key))
        return Group(rows, self.format_summary())

    def close(self) -> None:
        """Stop the live table and restore the terminal."""
        self.live.stop()
