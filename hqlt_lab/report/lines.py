"""The numbers themselves: a CSV line per arm and metric, with every digit."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from hqlt_lab.experiment.change import spelled_value
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.rows import UNFINISHED, Row, reported

NUMBERS = ("n", "median", "mad", "mean", "low", "high", "best")
PUBLISHED = ("best", "median", "mad")
DIFFERENCE = {
    "baseline": "baseline", "n": "pairs", "mean": "difference", "low": "difference_low", "high": "difference_high",
    "confidence": "difference_confidence", "p": "p_t", "permutation": "p_signs", "fisher": "p_solved",
    "verdict": "verdict", "needed": "seeds_needed",
}  # fmt: skip


def csv_of(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The table for other programs; what is not known is left empty."""
    lines = [
        line_of(row, metric, experiment)
        for row in rows
        for metric in dict.fromkeys([*([] if row.quoted else reported(experiment.measure)), *row.published])
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(word for line in lines for word in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def line_of(row: Row, metric: str, experiment: Experiment) -> dict[str, Any]:
    """One arm, one metric."""
    summary = asdict(row.summaries[metric]) if metric in row.summaries else {}
    solved, of = summary.get("solved") or ("", "")
    low, high = row.steps or ("", "")
    published = row.published.get(metric, {})
    return {
        "arm": row.title,
        "source": "quoted" if row.quoted else "run",
        "metric": metric,
        **{word: summary.get(word) for word in NUMBERS},
        "solved": solved,
        "solved_of": of,
        **difference_of(row, metric),
        **{f"published_{word}": published.get(word) for word in dict.fromkeys([*PUBLISHED, *published])},
        "seeds": row.seeds or "",
        **point_of(row, experiment.tune),
        "points_tried": row.points or "",
        "cells_tried": row.cells or "",
        "parameters": row.parameters or "",
        "state_bytes": row.state_bytes or "",
        "flops_per_token": row.flops_per_token or "",
        "tokens_per_second": row.tokens_per_second or "",
        "fewest_steps": low,
        "most_steps": high,
        **{state: row.unfinished.get(state, "") for state in UNFINISHED},
    }


def difference_of(row: Row, metric: str) -> dict[str, Any]:
    """How far the arm is from its baseline, and the verdict."""
    told = asdict(row.differences[metric]) if metric in row.differences else {}
    return {column: told.get(word) for word, column in DIFFERENCE.items()}


def point_of(row: Row, tune: Iterable[str]) -> dict[str, Any]:
    """Each tuned path and its chosen value."""
    chosen = row.point or {}
    return {path: spelled_value(chosen[path]) if path in chosen else "" for path in tune}
