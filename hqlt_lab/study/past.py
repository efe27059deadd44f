"""A study as its folder remembers it, without its file: what was trained, with which settings and which code.

The file may have changed since, or be gone; the ledger has every attempt, each cell's folder its settings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.experiment import Arm, Experiment
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.files import read_json
from hqlt_lab.registry import settings_from
from hqlt_lab.study.attempts import Attempt, Attempts
from hqlt_lab.study.choose import by_point
from hqlt_lab.study.record import SETTLED, Record, with_answers
from hqlt_lab.study.standing import OUTCOME, changed
from hqlt_lab.study.store import Store
from hqlt_lab.track.provenance import sources_today
from hqlt_lab.train.claim import FILE


@dataclass(frozen=True, kw_only=True)
class Past:
    """What is known of a study."""

    name: str
    records: Sequence[Record]  # of cells that were begun
    settings: Mapping[str, Mapping[str, Any]]  # arm -> the settings of one of its cells, the arm begun first first


def remember(store: Store) -> Past:
    """Read a study's folder."""
    ledger = Attempts(store)
    records = [record_of(tries, store) for key in ledger.attempts if (tries := ledger.of(key))]
    if not records:
        raise StoreError(f"{store.folder}: nothing was trained here yet. `hqlt run FILE` trains a study.")
    settings: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if record.arm not in settings and (record.folder / FILE).is_file():
            settings[record.arm] = cell_in(record.folder)
    return Past(name=store.name, records=records, settings=settings)


def record_of(tries: Sequence[Attempt], store: Store) -> Record:
    """How a cell stood last."""
    last = tries[-1]
    cell, end = last.cell, last.end
    folder = store.cell(last.key, last.generation)
    return Record(
        key=last.key,
        arm=cell["arm"],
        seed=cell["seed"],
        point=cell["point"],
        counts=cell["counts"],
        state=last.status if last.status in SETTLED else "waiting",  # type: ignore[arg-type]
        attempts=len(tries),
        why=end.get("why", ""),
        code=last.made_by,
        changed=changed(last.made_by),
        folder=folder,
        **with_answers({name: end[name] for name in OUTCOME if name in end}, folder),
    )


def experiment_of(past: Past) -> Experiment:
    """As much of the file as the cells tell: arms by title, tuned values and seeds that were begun, what counts."""
    told = next(iter(past.settings.values()), {})
    tuned = dict.fromkeys(path for record in past.records for path in record.point)
    points = [point for point, _ in by_point(past.records)]
    counted = sorted({record.seed for record in past.records if record.counts})
    searched = sorted({record.seed for record in past.records if not record.counts})
    return Experiment(
        name=past.name,
        question="",
        base={},
        arms=tuple(Arm(name=title) for title in dict.fromkeys(record.arm for record in past.records)),
        tune={path: once([point[path] for point in points if path in point]) for path in tuned},
        seeds=tuple(counted),
        tune_seeds=tuple(searched),
        measure=settings_from(MeasureConfig, told.get("measure", {})),
        published={},
        quoted={},
    )


def once(values: Sequence[Any]) -> list[Any]:
    """Each value at its first place; they may be parts, which have no hash."""
    return [value for number, value in enumerate(values) if value not in values[:number]]


def cell_in(folder: Path) -> dict[str, Any]:
    """The settings in a cell's folder, as they are written."""
    told: dict[str, Any] = read_json(folder / FILE)
    return told


def absent(names: Iterable[str]) -> list[str]:
    """Which of these sources nothing here has: parts whose file was not included."""
    names = list(names)
    known = sources_today(names)
    return [name for name in names if name not in known]
