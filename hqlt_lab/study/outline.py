"""The plan of a study as it was last made, kept in its folder: who only looks need not compose a thousand models.

    runs/studies/NAME/plan.json     every cell of the grid, and a sign of all that it was made of

The sign is a hash of the experiment and of every source of the lab that takes part.  Where one of them is another
today the plan is made anew; it always is where we cannot tell: with parts from outside, which may import anything, with
data whose content is in the keys, and in a search, which says step by step what comes next.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.experiment import Arm
from hqlt_lab.experiment.plan import select, words
from hqlt_lab.experiment.read import read
from hqlt_lab.files import write
from hqlt_lab.registry import declared, find, included, installed, outside_parts, typed
from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.place import Place
from hqlt_lab.study.store import is_study
from hqlt_lab.track.provenance import place as room

FILE = "plan.json"
KEY = re.compile("[0-9a-f]{16}")
BEGAN = time.time()  # modules are in memory as they were then


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


def keep(agenda: Agenda, made_of: str | None) -> None:
    """Write a plan down under the sign that was taken before it was made, if all of it is still the same."""
    experiment, folder = agenda.experiment, agenda.store.folder
    unsure = agenda.search or any(find("task", cell.task["name"]).has_data for cell in agenda.first.values())  # type: ignore[attr-defined]
    if made_of is None or unsure or not is_study(folder) or made_of != sign(experiment.file, experiment.change):
        return
    with suppress(OSError):
        write(folder / FILE, json.dumps({"sign": made_of, **as_json(outline_of(agenda))}, separators=(",", ":")) + "\n")


def kept(folder: Path, made_of: str | None) -> Outline | None:
    """The plan that was written down; None if there is none, or anything that it was made of has changed."""
    try:
        told = json.loads((folder / FILE).read_text()) if made_of else {}
        return from_json(told) if made_of and told["sign"] == made_of else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):  # it may come from anybody
        return None


def sign(file: Path, change: Sequence[str]) -> str | None:
    """Of all that a plan is made of; None where we cannot tell, or a source was written since this process began."""
    if installed() or typed() or included() or declared() or outside_parts():
        return None
    made = hashlib.sha256(repr(read(file, change)).encode())
    try:
        for source in sources():
            if source.stat().st_mtime > BEGAN:
                return None
            made.update(f"\n{source.name}\n".encode() + hashlib.sha256(source.read_bytes()).digest())
    except OSError:
        return None
    return made.hexdigest()


def sources() -> Iterator[Path]:
    """Every file of the lab that reads, checks or names."""
    for name in ("registry", "ops", "components", "model", "tasks", "experiment", "study"):
        yield from sorted(room(name).rglob("*.py"))


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
    arms = [Arm(name=name, levels=dict(levels)) for name, levels in told["arms"]]
    points, report = [dict(point) for point in told["points"]], [*map(str, told["report"])]
    keys_are_names = all(KEY.fullmatch(key) for key, *_ in told["places"])  # of folders
    if not keys_are_names or not all(text.isprintable() for text in (*(arm.title for arm in arms), *report)):
        raise ValueError("this was not written by the lab")
    places = [Place(key=key, arm=arms[arm], point=points[point], seed=seed) for key, arm, point, seed in told["places"]]
    return Outline(report=report, retries=int(told["retries"]), places=places)
