"""Progress of a study as data: the cells in training, the number of settled cells and the remaining time."""

from collections import Counter
from collections.abc import Mapping

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.formatting import format_estimate
from hqlt_lab.study.eta import EtaEstimator, Workload
from hqlt_lab.study.ledger.cell_record import CellRecord, count_unsuccessful, format_unsuccessful
from hqlt_lab.study.study_callback import StudyCallback


class ProgressTracker(StudyCallback):
    """Callback that keeps the progress of a study. A subclass displays it."""

    def __init__(self) -> None:
        self.eta = EtaEstimator({}, 1)
        self.num_settled, self.num_cells = 0, 0
        self.unsuccessful: Counter[str] = Counter()  # settled cells that failed or diverged, by state
        self.running_cells: dict[str, tuple[CellRecord, Cell]] = {}
        self.latest_metrics: dict[str, dict[str, float]] = {}

    def on_study_start(
        self, eta: EtaEstimator, num_settled: int, num_cells: int, unsuccessful: Mapping[str, int]
    ) -> None:
        self.eta, self.num_settled, self.num_cells = eta, num_settled, num_cells
        self.unsuccessful = Counter(unsuccessful)

    def on_cell_start(self, record: CellRecord, cell: Cell) -> None:
        self.running_cells[record.key], self.latest_metrics[record.key] = (record, cell), {}
        self.eta.start_cell(record.key, Workload(record.arm, cell.train.steps))

    def on_metrics(self, key: str, step: int, metrics: dict[str, float]) -> None:
        self.latest_metrics[key] |= metrics
        self.eta.advance_cell(key, step)

    def on_cell_end(self, record: CellRecord) -> None:
        remaining_workload = self.eta.end_cell(record.key, record)
        self.running_cells.pop(record.key)
        self.num_settled += record.state not in ("waiting", "running")
        self.unsuccessful += count_unsuccessful([record.state])
        if record.state == "waiting":
            self.eta.waiting[record.key] = remaining_workload

    def on_look(self, text: str, num_added: int, waiting: Mapping[str, Workload]) -> None:
        self.num_cells += num_added
        self.eta.waiting |= waiting

    def format_start(self) -> str:
        """Return the sentence for the start of a study: how many cells are settled and how many are left."""
        num_left = len(self.eta.waiting) + len(self.eta.pending)
        has_work = f"{num_left} to train, {self.eta.workers} at a time"
        remaining = has_work if self.eta.waiting else "nothing is left to train"
        unsuccessful = format_unsuccessful(self.unsuccessful)
        return f"{self.num_settled} of {self.num_cells} cells are finished{unsuccessful}; {remaining}."

    def format_settled(self) -> str:
        """Return e.g. "8 of 8 cells finished, 1 failed"."""
        return f"{self.num_settled} of {self.num_cells} cells finished{format_unsuccessful(self.unsuccessful)}"

    def format_summary(self) -> str:
        """Return e.g. "3 of 8 cells finished, 1 failed, 2 running, about 1 min left"."""
        seconds = self.eta.estimate_remaining()
        time_left = f", {format_estimate(seconds)} left" if seconds is not None else ""
        return f"{self.format_settled()}, {len(self.running_cells)} running{time_left}"

    def format_latest_metrics(self, key: str) -> str:
        """Return the latest training loss and validation metric of a running cell."""
        select, metrics = self.running_cells[key][1].measure.select, self.latest_metrics[key]
        labels = {"train/loss": "loss", select: select.split("/")[0]}
        return "  ".join(f"{label} {metrics[name]:.4g}" for name, label in labels.items() if name in metrics)


def format_end_state(record: CellRecord) -> str:
    """Return the state of a cell whose attempt has ended without a result."""
    if record.state != "waiting":
        return record.state
    return "will be retried" if record.why else "saved, and will be resumed with the study"


def cell_title(record: CellRecord) -> str:
    """Return the display name of a cell: its arm, its tuned values and its seed."""
    tuned = [f"{path.rsplit('.', 1)[-1]}={value}" for path, value in record.point.items()]
    return ", ".join([record.arm, *tuned, f"seed {record.seed}"])
