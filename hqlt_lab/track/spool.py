"""The points of a run's curves, in a file of its folder: a line of JSON each, written as they come.

    {"step": 10, "time": 1790000000000, "metrics": {"train/loss": 0.69}}

Training writes here whether or not a tracker listens.  A line is whole or does not count: the next attempt cuts off
what a crash tore.  An attempt that goes on from an older checkpoint records some steps again; these are left out, so
that in the file the steps of a metric only rise, and a reader may begin anywhere.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from hqlt_lab.train.lines import add_line, read_lines, write_on

FILE = "metrics.jsonl"
TAIL = 2**16  # bytes: more than a line has


class Point(NamedTuple):
    """What was recorded at one moment."""

    step: int
    time: int  # milliseconds since 1970, as MLflow counts
    metrics: dict[str, float]


class Spool:
    """Where a run's points are written.  `add` is what `train.fit` calls a record."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        points, end = read(folder)
        self.last = {name: point.step for point in points for name in point.metrics}  # the highest step of each metric
        self.file = write_on(folder / FILE, end)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write down some metrics, without those that are there already."""
        new = {name: float(value) for name, value in metrics.items() if step > self.last.get(name, -1)}
        if new:
            told = {"step": step, "time": time.time_ns() // 1_000_000, "metrics": new}
            add_line(self.file, told)
            self.last |= dict.fromkeys(new, step)

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(folder: Path, start: int = 0, most: int = -1) -> tuple[list[Point], int]:
    """The points behind byte `start`, of at most `most` bytes, and where to go on; an unfinished line waits."""
    lines, end = read_lines(folder / FILE, start, most)
    return list(points_in(lines)), end


def points_in(lines: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    """The points that these lines say, as far as they say any."""
    for told in lines:
        try:
            yield Point(told["step"], told["time"], told["metrics"])
        except KeyError:
            continue


def last_step(folder: Path) -> int:
    """The step of the last point, found at the end of the file; 0 before the first."""
    points, _ = read(folder, max(0, size(folder) - TAIL))
    return points[-1].step if points else 0


def size(folder: Path) -> int:
    """Bytes written so far."""
    file = folder / FILE
    return file.stat().st_size if file.exists() else 0
