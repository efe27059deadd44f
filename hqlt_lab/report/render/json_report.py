"""Render the whole report as JSON; non-finite numbers become null.

question, answer, warnings     as in the table
measure                        the `measure` section of the experiment
looks                          with `seeds: {until: decided}` the numbers of seeds of all looks and of those that were
                               taken, and the error probability of each; else null
rows                           by arm: summaries, differences, published values, the selected point, the results of
                               tuned values, the steps to solve, and for every seed its metrics, evaluations with
                               lesions, and last probe
effects                        main effects and interactions of a grid
importance                     of each hyperparameter, if requested; else empty
cells                          number of cells by state; cells without a result, with the reason
"""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hqlt_lab.formatting import dump_json
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.stats.tuning_windows import TuningWindow
from hqlt_lab.rundir.diagnostics import read_probes
from hqlt_lab.rundir.evaluations import read_evaluations
from hqlt_lab.stats.sequential_testing import spend_alpha
from hqlt_lab.study.ledger.cell_record import CellRecord

if TYPE_CHECKING:
    from hqlt_lab.report.study_report import Report

COST_FIELDS = ("parameters", "state_bytes", "flops_per_token", "tokens_per_second")


def render_json(report: "Report") -> str:
    """Render a report as JSON. All keys are always present, even if empty."""
    states = Counter(record.state for record in report.records)
    content = {
        "name": report.experiment.name,
        "question": report.experiment.question,
        "answer": str(report.answer),
        "warnings": report.warnings,
        "measure": report.experiment.measure,
        "seeds": report.seeds,
        "looks": looks_to_dict(report),
        "rows": [row_to_dict(row) for row in report.rows],
        "effects": report.effects,
        "importance": report.importance,
        "cells": {
            "total": len(report.records),
            "states": dict(sorted(states.items())),
            "unfinished": [unfinished_to_dict(record) for record in report.records if record.state != "done"],
        },
    }
    return dump_json(content) + "\n"


def looks_to_dict(report: "Report") -> dict[str, Any] | None:
    """Return the looks of a study whose seeds are added until all comparisons are decided; None for fixed seeds."""
    looks, metric = report.experiment.looks, report.experiment.measure.primary_metric
    if not looks:
        return None
    num_looks = max((row.differences[metric].look or 0 for row in report.rows if metric in row.differences), default=0)
    alphas = [spend_alpha(look) for look in range(1, len(looks) + 1)]
    return {"seeds": looks, "taken": looks[:num_looks], "alpha": alphas, "spent": sum(alphas[:num_looks])}


def row_to_dict(row: Row) -> dict[str, Any]:
    """Return the JSON object of one arm or quoted result."""
    low, high = row.step_range or (None, None)
    return {
        "arm": row.title,
        "source": "quoted" if row.is_quoted else "run",
        "summaries": row.summaries,
        "differences": row.differences,
        "published": row.published_values,
        "point": row.point,
        "points_tried": row.points_tried,
        "cells_tried": row.cells_tried,
        "tuning": [window_to_dict(window) for window in row.tuning_windows],
        "steps_to_solve": row.solve_times,
        "steps": {"fewest": low, "most": high},
        **{name: getattr(row, name) for name in COST_FIELDS},
        "unfinished": row.unfinished_counts,
        "seeds": [seed_to_dict(record) for record in row.records],
    }


def window_to_dict(window: TuningWindow) -> dict[str, Any]:
    """Return the JSON object of a tuned list, with the smallest and largest possible width of its window."""
    return asdict(window) | {"factor_range": window.factor_range}


def seed_to_dict(record: CellRecord) -> dict[str, Any]:
    names = ("seed", "key", "state", "step", "seconds", "metrics", "errors", "protocols", "run")
    values = {name: getattr(record, name) for name in names}
    return values | {"evaluations": read_evaluations(record.folder), "probes": read_probes(record.folder)}


def unfinished_to_dict(record: CellRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("key", "arm", "seed", "point", "state", "attempts", "why")}
