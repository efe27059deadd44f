"""The points of a run's curves, in a file of its folder: a line of JSON each, written as they come.

    {"step": 10, "time": 1790000000000, "metrics": {"train/loss": 0.69}}

Training writes here whether or not a tracker listens.  A line is whole or does not count: the next attempt cuts off
what a crash tore.  An attempt that goes on from an older checkpoint records some steps again; these are left out, so
that in the file the steps of a metric only rise, and a reader may begin anywhere.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

FILE = "metrics.jsonl"


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
        self.file = (folder / FILE).open("ab", buffering=0)  # a line is one write, so no reader sees it in pieces
        self.file.truncate(end)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write down some metrics, without those that are there already."""
        new = {name: float(value) for name, value in metrics.items() if step > self.last.get(name, -1)}
        if new:
            told = {"step": step, "time": time.time_ns() // 1_000_000, "metrics": new}
            self.file.write(json.dumps(told).encode() + b"\n")
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
    file = folder / FILE
    if not file.exists():
        return [], 0
    with file.open("rb") as lines:
        lines.seek(start)
        text = lines.read(most)
    whole = text[: text.rfind(b"\n") + 1]
    return list(points_in(whole)), start + len(whole)


def points_in(text: bytes) -> Iterator[Point]:
    """The points that can be read; a disk that lost power may have left a line of zeros."""
    for line in text.splitlines():
        try:
            told = json.loads(line)
            yield Point(told["step"], told["time"], told["metrics"])
        except (ValueError, KeyError, TypeError):
            continue


def size(folder: Path) -> int:
    """Bytes written so far."""
    file = folder / FILE
    return file.stat().st_size if file.exists() else 0
