"""The plan of a study as it was last made, kept in its folder: who only looks need not compose a thousand models.

    runs/studies/NAME/plan.json     every cell of the grid, and a sign of all that it was made of

The sign is a hash of the experiment, every source of the lab that
takes part, and every file of parts from outside.  Where anything is
another today, or a search says step by step what comes next, the plan is made anew.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.experiment import Arm
from hqlt_lab.experiment.plan import select, words
from hqlt_lab.experiment.read import read
from hqlt_lab.files import write
from hqlt_lab.registry import declared, included, installed, outside_parts, typed
from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.place import Place
from hqlt_lab.study.store import is_study
from hqlt_lab.track.provenance import place as room

FILE = "plan.json"
KEY = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What one needs to know of an experiment to see how far it is."""

    report: list[str]  # the metrics that count
    retries: int
    places: list[Place]

    def chosen(self, only: Sequence[str]) -> list[Place]:
        """The cells that `--only arm=synchronous,seed=1` means."""
        if not only:
            return self.places
        known = [words(one.arm.name, one.seed, {**one.arm.levels, **(one.point or {})}) for one in self.places]
        return select(self.places, known, only)


def outline_of(agenda: Agenda) -> Outline:
    """Of a grid."""
    report, retries = agenda.experiment.measure.report, agenda.standing.retries
    return Outline(report=report, retries=retries, places=agenda.listed)


def keep(folder: Path, file: Path, change: Sequence[str], outline: Outline) -> None:
    """Write it down, if we may."""
    if is_study(folder) and (made_of := sign(file, change)):
        with suppress(OSError):
            write(folder / FILE, json.dumps({"sign": made_of, **as_json(outline)}, separators=(",", ":")) + "\n")


def kept(folder: Path, file: Path, change: Sequence[str]) -> Outline | None:
    """The plan that was written down; None if there is none, or anything that it was made of has changed."""
    try:
        told = json.loads((folder / FILE).read_text())
        return from_json(told) if told["sign"] == sign(file, change) else None
    except (OSError, ValueError, TypeError, LookupError, RecursionError):  # a folder may come from anybody
        return None


def sign(file: Path, change: Sequence[str]) -> str | None:
    """Of all that a plan is made of; None where parts come from a package or a prompt, whose files we do not know."""
    if installed() or typed():
        return None
    made = hashlib.sha256(repr(read(file, change)).encode())
    for source in sources():
        made.update(f"\n{source.name}\n".encode() + hashlib.sha256(source.read_bytes()).digest())
    return made.hexdigest()


def sources() -> Iterator[Path]:
    """Every file of the lab that reads, checks or names, and what was included from outside."""
    for name in ("registry", "ops", "components", "model", "tasks", "experiment", "study"):
        yield from sorted(room(name).rglob("*.py"))
    outside = (*included(), *declared(), *map(Path, outside_parts()))
    yield from dict.fromkeys(file.resolve() for file in outside)


def as_json(outline: Outline) -> dict[str, Any]:
    """Arms and points once, and each place by their numbers."""
    arms = {place.arm.title: place.arm for place in outline.places}
    points = {json.dumps(place.point): place.point for place in outline.places}
    arm_number, point_number = ({name: number for number, name in enumerate(book)} for book in (arms, points))
    return {
        "report": outline.report,
        "retries": outline.retries,
        "arms": [[arm.name, dict(arm.levels)] for arm in arms.values()],
        "points": list(points.values()),
        "places": [
            [one.key, arm_number[one.arm.title], point_number[json.dumps(one.point)], one.seed]
            for one in outline.places
        ],
    }


def from_json(told: dict[str, Any]) -> Outline:
    """The way back; of an arm's changes nothing is known."""
    arms = [Arm(name=name, levels=levels) for name, levels in told["arms"]]
    points = told["points"]
    if not all(KEY.fullmatch(key) for key, *_ in told["places"]):  # is the name of a folder
        raise ValueError("a key is a short hash")
    places = [Place(key=key, arm=arms[arm], point=points[point], seed=seed) for key, arm, point, seed in told["places"]]
    return Outline(report=told["report"], retries=told["retries"], places=places)
