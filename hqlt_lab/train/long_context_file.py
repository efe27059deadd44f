"""How far a trained cell gets beyond what it was trained on, in a file of its folder: curves, readable without torch.

[{"name": "loss", "along": "place", "points": [[64, 3.2], [128, 2.9], ...], "trained": 256, "time": 179...}, ...]
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hqlt_lab.files import changing, read_json, write

FILE = "long_context.json"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One quantity against another that is driven further than in training."""

    name: str  # loss, accuracy, needle, milliseconds_per_token, state_bytes
    along: str  # place, length, pairs, distance, context
    points: list[tuple[int, float]]
    trained: int | None = None  # how far training went; None: that has no meaning here
    times: int = 1  # how many times as far it was asked to go
    time: int = 0  # milliseconds since 1970, as MLflow counts

    @property
    def title(self) -> str:
        """loss_by_place"""
        return f"{self.name}_by_{self.along}"


def curves_in(folder: Path) -> list[Curve]:
    """All that were measured of the cell in this folder."""
    file = folder / FILE
    if not file.exists():
        return []
    told = read_json(file)
    return [Curve(**{**one, "points": [(x, y) for x, y in one["points"]]}) for one in told]


def write_curves(folder: Path, curves: Iterable[Curve]) -> None:
    """Add some, or replace those of the same title."""
    now = time.time_ns() // 1_000_000
    made = {curve.title: asdict(curve) | {"time": now} for curve in curves}  # measured as they are asked for
    with changing(folder / FILE):
        known = {curve.title: asdict(curve) for curve in curves_in(folder)} | made
        write(folder / FILE, json.dumps(list(known.values()), indent=1) + "\n")
