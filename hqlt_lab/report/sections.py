"""What stands on the page, before it is HTML: tables that a reader can still read, and how it was made."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.report.figures.material import Material
from hqlt_lab.report.words import counted, shown

if TYPE_CHECKING:
    from hqlt_lab.report.report import Report

MOST_ROWS, MOST_CELLS, MOST_FACTS = 200, 50, 40
WIDTH = 300  # letters of what a cell says went wrong


@dataclass(frozen=True)
class Grid:
    """A table, and what it does not show."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: str = ""


class Section(NamedTuple):
    """A table with its headline."""

    title: str
    id: str
    note: str
    grid: Grid


def results(report: "Report") -> Grid:
    """The table; of very many arms the baseline, the best, and what is quoted."""
    table = report.table()
    if len(table.rows) <= MOST_ROWS:
        return Grid(table.columns, table.rows)
    rank = Material(report.experiment, report.rows).rank
    arms = report.rows
    order = sorted(range(len(arms)), key=lambda place: (place > 0 and not arms[place].quoted, rank(arms[place])))
    kept = sorted(order[:MOST_ROWS])
    rest = len(table.rows) - len(kept)
    told = f"The baseline and the best are shown; {counted(rest, 'row')} left out. The CSV file has them all."
    return Grid(table.columns, [table.rows[place] for place in kept], told)


def further(report: "Report") -> list[Section]:
    """What there is besides the results."""
    made = [*beside(report), chosen(report), unfinished(report)]
    return [section for section in made if section.grid.rows]


def beside(report: "Report") -> list[Section]:
    """The effects of a grid, and whatever else the report has tables of."""
    made = []
    for title, table in report.more_tables().items():
        rest = len(table.rows) - MOST_ROWS
        grid = Grid(table.columns, table.rows[:MOST_ROWS], left_out(rest, "line"))
        made.append(Section(title, title.lower().replace(" ", "-"), " ".join(table.notes), grid))
    return made


def chosen(report: "Report") -> Section:
    """The hyper-parameters of every arm, and how many were tried."""
    paths = list(report.experiment.tune)
    arms = [row for row in report.rows if row.point]
    rows = [
        [row.title, *(shown(row.point.get(path)) for path in paths), str(row.points), str(row.cells)]
        for row in arms[:MOST_ROWS]
        if row.point
    ]
    measure = report.experiment.measure
    note = f"By the {measure.statistic} of {measure.select} over seeds; the test never chooses."
    grid = Grid(["arm", *paths, "points tried", "cells"], rows, left_out(len(arms) - len(rows), "arm"))
    return Section("Chosen hyper-parameters", "chosen", note, grid)


def unfinished(report: "Report") -> Section:
    """Cells without a result, and how to find out more."""
    cells = [record for record in report.records if record.state != "done"]
    cells.sort(key=lambda record: record.state in ("waiting", "running"))  # those that went wrong first
    rows = [
        [
            f"{record.arm}, seed {record.seed}",
            record.state,
            shorten(record.why, WIDTH, placeholder=" ..."),
            f"hqlt logs {record.key}",
        ]
        for record in cells[:MOST_CELLS]
    ]
    grid = Grid(["cell", "state", "why", "more"], rows, left_out(len(cells) - len(rows), "cell"))
    return Section("Cells without a result", "unfinished", "", grid)


def left_out(count: int, noun: str) -> str:
    return f"{counted(count, f'more {noun}')} not shown here; the JSON file has all." if count > 0 else ""


def progress(report: "Report") -> str:
    """18 of 18 cells done"""
    done = sum(record.state == "done" for record in report.records)
    return f"{done} of {counted(len(report.records), 'cell')} done"


def facts_of(report: "Report", provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the results stand on, in words."""
    told = {
        "seeds": ", ".join(map(str, report.experiment.final_seeds)),
        "commit": commit(provenance.get("git")),
        "libraries": in_words(provenance.get("versions")),
        "machine": in_words(provenance.get("machine")),
        "command": str(provenance.get("command") or ""),
        "sources": "\n".join(sources(report)),
    }
    return [(word, value) for word, value in told.items() if value]


def commit(git: Mapping[str, Any] | None) -> str:
    """a1b2c3, with uncommitted changes in 2 files"""
    if not git or not git.get("commit"):
        return ""
    changes = counted(len(git.get("changed") or ()), "file")
    return f"{git['commit']}, with uncommitted changes in {changes}" if git.get("dirty") else str(git["commit"])


def in_words(values: Any) -> str:
    """python 3.11.7, torch 2.13.0"""
    pairs = values.items() if isinstance(values, Mapping) else ()
    told = [(key, ", ".join(map(str, value)) if isinstance(value, list) else value) for key, value in pairs]
    return ", ".join(f"{str(key).replace('_', ' ')} {value}" for key, value in told if value not in ("", None))


def sources(report: "Report") -> Iterator[str]:
    """lab 3f2c91 (18 cells): which code made the results, by the hash of its source."""
    made = Counter(pair for record in report.records if record.state == "done" for pair in record.code.items())
    for (name, digest), count in sorted(made.items())[:MOST_FACTS]:
        yield f"{name} {digest} ({counted(count, 'cell')})"
