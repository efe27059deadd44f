"""A study as it goes: what is being trained, what is done, how long it will take.

On a terminal a table that stays in its place; elsewhere a line per cell, and one a minute.
"""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.study.pace import Pace, Work
from hqlt_lab.study.record import Record
from hqlt_lab.study.view import View
from hqlt_lab.words import about, in_time

MINUTE = 60.0


class Board(View):
    """What `study.coordinator` tells its view, shown."""

    def __init__(self, console: Console, measure: MeasureConfig) -> None:
        self.console, self.measure = console, measure
        self.pace = Pace({}, 1)
        self.settled_before, self.total, self.lost = 0, 0, 0
        self.shown: dict[str, tuple[Record, Cell]] = {}
        self.latest: dict[str, dict[str, float]] = {}
        self.live = Live(console=console, refresh_per_second=2, transient=True)
        self.last_line = time.monotonic()
        self.asked = ""  # what lm-eval asks of which cell

    def begin(self, pace: Pace, settled: int, total: int) -> None:
        """What there is to do, and how many cells are settled already, of how many."""
        self.pace, self.settled_before, self.total = pace, settled, total
        cells = len(pace.waiting) + len(pace.later)
        doing = f"{cells} to train, {pace.workers} at a time" if pace.waiting else "nothing is left to train"
        self.console.print(f"{settled} of {total} cells are settled; {doing}.")
        if self.console.is_interactive and pace.waiting:
            self.live.start()

    def started(self, record: Record, cell: Cell) -> None:
        self.shown[record.key], self.latest[record.key] = (record, cell), {}
        self.pace.begin(record.key, Work(record.arm, cell.train.steps))

    def point(self, key: str, step: int, metrics: dict[str, float]) -> None:
        self.latest[key] |= metrics
        self.pace.advance(key, step)

    def settled(self, record: Record) -> None:
        left = self.pace.end(record.key, record)
        self.shown.pop(record.key)
        self.settled_before += record.state not in ("waiting", "running")
        if record.state == "waiting":
            self.pace.waiting[record.key] = left
        self.console.print(f"{self.settled_before}/{self.total}  {self.sentence(record)}", soft_wrap=True)

    def sentence(self, record: Record) -> str:
        """synchronous, seed 0: done, test/normalised_accuracy 100 (42 s)"""
        title = escape(f"{title_of(record)}")
        if record.state == "done":
            known = [name for name in self.measure.report if name in record.metrics]  # not what is asked later
            told = ", ".join(f"{name} {record.metrics[name]:.4g}" for name in known)
            return f"{title}: {told} ({in_time(record.seconds)})"
        waits = "will be tried again" if record.why else "saved, and goes on when the study does"
        state = waits if record.state == "waiting" else record.state
        return f"{title}: [yellow]{state}[/yellow]. {escape(record.why)}".rstrip()

    def evaluating(self, what: str, done: int, total: int) -> None:
        """A line per task, when its first rows are done."""
        self.live.stop()
        if what != self.asked:
            self.asked = what
            self.console.print(f"asking {what} ({total} rows)", soft_wrap=True, markup=False, highlight=False)

    def away(self, sentence: str) -> None:
        self.console.print(f"[yellow]{escape(sentence)}[/yellow]", soft_wrap=True)

    def stopping(self) -> None:
        self.console.print("Stopping: every cell saves first. Ctrl-C again stops at once.")

    def look(self) -> None:
        """Called a few times a second."""
        if self.live.is_started:
            self.live.update(self.table())
        elif time.monotonic() - self.last_line > MINUTE:
            self.last_line = time.monotonic()
            self.console.print(self.summary())

    def summary(self) -> str:
        left = self.pace.remaining()
        soon = f", {about(left)} left" if left is not None else ""
        return f"{self.settled_before} of {self.total} cells settled, {len(self.shown)} in training{soon}"

    def table(self) -> Group:
        """A row per cell in training."""
        rows = Table(box=None, pad_edge=False, show_header=False)
        for key, (record, cell) in self.shown.items():
            step, told = self.pace.running[key].step, self.latest[key]
            names = {"train/loss": "loss", self.measure.select: self.measure.select.split("/")[0]}
            words = [f"{word} {told[name]:.4g}" for name, word in names.items() if name in told]
            bar = ProgressBar(total=cell.train.steps, completed=step, width=20)
            rows.add_row(escape(title_of(record)), bar, f"{step}/{cell.train.steps}", "  ".join(words))
        return Group(rows, self.summary())

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.live.stop()


def title_of(record: Record) -> str:
    """A cell for people: its arm, its tuned values, its seed."""
    tuned = [f"{path.rsplit('.', 1)[-1]}={value}" for path, value in record.point.items()]
    return ", ".join([record.arm, *tuned, f"seed {record.seed}"])
