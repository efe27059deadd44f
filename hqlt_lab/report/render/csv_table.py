"""Render all numbers as CSV, one line per arm and metric, in full precision.

Spreadsheet programs evaluate a cell that begins with = + - or @ as a formula. Names in an experiment file may come from
others, so such text gets an apostrophe in front, which makes it plain text. Numbers stay as they are.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from hqlt_lab.experiment.apply_overrides import format_value
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import UNFINISHED_STATES, Row, reported_metrics
from hqlt_lab.report.build_tables import find_tested_baselines

SUMMARY_FIELDS = ("n", "median", "mad", "mean", "low", "high", "best")
PUBLISHED_FIELDS = ("best", "median", "mad")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
DIFFERENCE_COLUMNS = {
    "baseline": "baseline", "n": "pairs", "mean": "difference", "low": "difference_low", "high": "difference_high",
    "confidence": "difference_confidence", "p": "p_t", "permutation": "p_permutation", "fisher": "p_solved",
    "two_groups": "p_groups", "equivalence": "p_equivalence", "detectable": "detectable",
    "verdict": "verdict", "seeds_needed": "seeds_needed", "look": "look",
}  # fmt: skip


def render_csv(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Render the rows as CSV; unknown values are empty."""
    baselines = {metric: find_tested_baselines(rows, metric) for metric in reported_metrics(experiment.measure)}
    lines = [
        {
            escape_formula(column): escape_formula(value)
            for column, value in csv_row(row, metric, experiment, row.title in baselines.get(metric, ())).items()
        }
        for row in rows
        for metric in dict.fromkeys(
            [*([] if row.is_quoted else reported_metrics(experiment.measure)), *row.published_values]
        )
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(column for line in lines for column in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def csv_row(row: Row, metric: str, experiment: Experiment, is_baseline: bool) -> dict[str, Any]:
    """Return the CSV line of one arm and metric by column; a baseline has the verdict "baseline"."""
    summary = asdict(row.summaries[metric]) if metric in row.summaries else {}
    num_solved, num_seeds = summary.get("solved") or ("", "")
    low, high = row.step_range or ("", "")
    published = row.published_values.get(metric, {})
    return {
        "arm": row.title,
        "source": "quoted" if row.is_quoted else "run",
        "metric": metric,
        **{name: summary.get(name) for name in SUMMARY_FIELDS},
        "solved": num_solved,
        "solved_of": num_seeds,
        **difference_fields(row, metric),
        **({"verdict": "baseline"} if is_baseline and metric not in row.differences else {}),
        **{f"published_{name}": published.get(name) for name in dict.fromkeys([*PUBLISHED_FIELDS, *published])},
        "seeds": row.num_seeds or "",
        **point_fields(row, experiment.tune),
        "points_tried": row.points_tried or "",
        "cells_tried": row.cells_tried or "",
        "parameters": row.parameters or "",
        "state_bytes": row.state_bytes or "",
        "flops_per_token": row.flops_per_token or "",
        "tokens_per_second": row.tokens_per_second or "",
        "fewest_steps": low,
        "most_steps": high,
        **{state: row.unfinished_counts.get(state, "") for state in UNFINISHED_STATES},
    }


def escape_formula(value: Any) -> Any:
    """Return text that a spreadsheet program would evaluate with an apostrophe in front, and other values unchanged."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA_STARTS) and not is_number(value)
    return f"'{value}" if is_formula else value


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def difference_fields(row: Row, metric: str) -> dict[str, Any]:
    """Return the columns of the comparison with the baseline."""
    difference = asdict(row.differences[metric]) if metric in row.differences else {}
    return {column: difference.get(name) for name, column in DIFFERENCE_COLUMNS.items()}


def point_fields(row: Row, tune: Iterable[str]) -> dict[str, Any]:
    """Return each tuned path with its selected value."""
    point = row.point or {}
    return {path: format_value(point[path]) if path in point else "" for path in tune}
