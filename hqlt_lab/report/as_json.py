"""Everything that a report says, for programs: plain JSON, in which what is no number is null.

question, answer, warnings     as in the table
measure                        what counts
rows                           by arm: summaries, differences, published values, the chosen point, and of every seed
                               its metrics, its lesions and the last look into its memories
effects                        of each factor of a grid
importance                     of each hyper-parameter, where it was asked for; else null
cells                          how many are in which state; those without a result, and why
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from hqlt_lab.report.rows import Row
from hqlt_lab.study.record import Record
from hqlt_lab.train.evaluations import read_evaluations
from hqlt_lab.train.probe_file import read_probes
from hqlt_lab.words import in_json

if TYPE_CHECKING:
    from hqlt_lab.report.report import Report

COSTS = ("parameters", "state_bytes", "flops_per_token", "tokens_per_second")


def as_json(report: "Report") -> str:
    """The keys are always the same; none is left out for being empty."""
    states = Counter(record.state for record in report.records)
    told = {
        "name": report.experiment.name,
        "question": report.experiment.question,
        "answer": report.answer,
        "warnings": report.warnings,
        "measure": report.experiment.measure,
        "seeds": report.experiment.final_seeds,
        "rows": [row_of(row) for row in report.rows],
        "effects": report.effects,
        "importance": report.importance,
        "cells": {
            "total": len(report.records),
            "states": dict(sorted(states.items())),
            "unfinished": [without_result(record) for record in report.records if record.state != "done"],
        },
    }
    return in_json(told) + "\n"


def row_of(row: Row) -> dict[str, Any]:
    """One arm, or a quoted result."""
    low, high = row.steps or (None, None)
    return {
        "arm": row.title,
        "source": "quoted" if row.quoted else "run",
        "summaries": row.summaries,
        "differences": row.differences,
        "published": row.published,
        "point": row.point,
        "points_tried": row.points,
        "cells_tried": row.cells,
        "steps": {"fewest": low, "most": high},
        **{name: getattr(row, name) for name in COSTS},
        "unfinished": row.unfinished,
        "seeds": [seed_of(record) for record in row.records],
    }


def seed_of(record: Record) -> dict[str, Any]:
    names = ("seed", "key", "state", "step", "seconds", "metrics", "errors", "made_by", "run")
    told = {name: getattr(record, name) for name in names}
    return told | {"evaluations": read_evaluations(record.folder), "probes": read_probes(record.folder)}


def without_result(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("key", "arm", "seed", "point", "state", "attempts", "why")}
