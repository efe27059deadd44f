"""metrics.jsonl: the logged metrics of a run, one JSON object per line.

    {"step": 10, "time": 1790000000000, "metrics": {"train/loss": 0.69}}

Training writes this file whether or not a tracker is configured.  Only complete lines count: the next attempt truncates
what a crash left unfinished.  An attempt that resumes from an older checkpoint logs some steps again; these are left
out, so that the steps of a metric only increase within the file and a reader may start at any line.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from hqlt_lab.files import check_numbers, check_types
from hqlt_lab.rundir.jsonl import append_line, open_for_append, read_jsonl

METRICS_FILE = "metrics.jsonl"
ROW_TYPES = {"step": (int,), "time": (int,), "metrics": (dict,)}
TAIL_BYTES = 2**16  # longer than any line


class MetricsRow(NamedTuple):
    """The metrics that were logged at one step."""

    step: int
    time: int  # Unix time in milliseconds, as in MLflow
    metrics: dict[str, float]


class MetricsWriter:
    """Appends rows to the metrics.jsonl of a run.  `write_row` can be passed to `train.fit.fit` as `on_metrics`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rows, end = read_rows(folder)
        self.last_steps = {name: row.step for row in rows for name in row.metrics}  # highest step by metric
        self.file = open_for_append(folder / METRICS_FILE, end)

    def write_row(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step, without those whose value at that step is already in the file."""
        new_metrics = {name: float(value) for name, value in metrics.items() if step > self.last_steps.get(name, -1)}
        if new_metrics:
            append_line(self.file, {"step": step, "time": time.time_ns() // 1_000_000, "metrics": new_metrics})
            self.last_steps |= dict.fromkeys(new_metrics, step)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(folder: Path, offset: int = 0, max_bytes: int = -1) -> tuple[list[MetricsRow], int]:
    """Return the rows after byte `offset`, reading at most `max_bytes`, and the offset at which to continue.

    An unfinished last line is left for the next call.
    """
    objects, end = read_jsonl(folder / METRICS_FILE, offset, max_bytes)
    return list(parse_rows(objects)), end


def parse_rows(objects: Iterable[Mapping[str, Any]]) -> Iterator[MetricsRow]:
    """Yield the rows of these objects, skipping objects that are not rows."""
    for entry in objects:
        try:
            check_types(entry, ROW_TYPES)
            check_numbers(entry["metrics"])
            yield MetricsRow(entry["step"], entry["time"], entry["metrics"])
        except (KeyError, ValueError):
            continue


def read_last_step(folder: Path) -> int:
    """Return the step of the last row, reading only the end of the file; 0 before the first."""
    rows, _ = read_rows(folder, max(0, metrics_file_size(folder) - TAIL_BYTES))
    return rows[-1].step if rows else 0


def metrics_file_size(folder: Path) -> int:
    """Return the size of metrics.jsonl in bytes, 0 if it does not exist."""
    file = folder / METRICS_FILE
    return file.stat().st_size if file.exists() else 0
