"""The rows as text: columns that say something, and notes that say what they mean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.statistics import Summary
from hqlt_lab.report.words import between, counted, shown, tuned
from hqlt_lab.words import in_numbers

Cells = list[str]


@dataclass(frozen=True)
class Table:
    """What any renderer needs, without its escapes."""

    columns: list[str]
    rows: list[Cells]
    notes: list[str] = field(default_factory=list)


def table_of(experiment: Experiment, rows: Sequence[Row]) -> Table:
    """The columns that are empty for every row are left out."""
    metrics = reported(experiment.measure)
    columns: dict[str, Cells] = {"arm": [row.title for row in rows], "seeds": [seeds(row) for row in rows]}
    for metric in metrics:
        columns |= metric_columns(rows, metric, f"{metric}: " if len(metrics) > 1 else "")
    columns |= {
        "chosen": [tuned(row.point or {}) for row in rows],
        "steps": steps(rows),
        "parameters": [in_numbers(row.parameters) if row.parameters else "" for row in rows],
        "tokens/s": [in_numbers(row.tokens_per_second) if row.tokens_per_second else "" for row in rows],
        "unfinished": [unfinished(row) for row in rows],
    }
    kept = {name: cells for name, cells in columns.items() if name == "arm" or any(cells)}
    return Table(list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)], notes(experiment, rows))


def seeds(row: Row) -> str:
    """3, or 2 of 3 where some gave no result (yet)"""
    done = len(row.done)
    return "" if row.quoted else str(done) if done == row.seeds else f"{done} of {row.seeds}"


def metric_columns(rows: Sequence[Row], metric: str, prefix: str) -> dict[str, Cells]:
    """One metric: every summary of it, and what was published."""

    def column(cell: Callable[[Summary, str], str]) -> Cells:
        return [cell(row.summaries[metric], metric) if metric in row.summaries else "" for row in rows]

    return {
        f"{prefix}median ± MAD": column(median),
        f"{prefix}mean [95 %]": column(mean),
        f"{prefix}best": column(lambda summary, metric: shown(summary.best, metric)),
        f"{prefix}solved": column(lambda summary, metric: "{} of {}".format(*summary.solved) if summary.solved else ""),
        f"{prefix}published": [published(row.published.get(metric, {}), metric) for row in rows],
    }


def median(summary: Summary, metric: str) -> str:
    """99.7 ± 0.1; a single seed has no spread"""
    spread = f" ± {shown(summary.mad, metric)}" if summary.n > 1 else ""
    return shown(summary.median, metric) + spread


def mean(summary: Summary, metric: str) -> str:
    """99.6 [99.1, 100.1]"""
    known = summary.low is not None
    reach = f" [{shown(summary.low, metric)}, {shown(summary.high, metric)}]" if known else ""
    return shown(summary.mean, metric) + reach


def published(values: Mapping[str, Any], metric: str) -> str:
    """99.7 ± 0.1, best 100.0"""
    told = {word: shown(value, metric) for word, value in values.items()}
    spread = told.pop("mad", "") if "median" in told else ""
    middle = told.pop("median", "") + (f" ± {spread}" if spread else "")
    return ", ".join(([middle] if middle else []) + [f"{word} {value}" for word, value in told.items()])


def steps(rows: Sequence[Row]) -> Cells:
    """Steps trained, where they differ; else the answer names them once."""
    told = [between(*row.steps) if row.steps else "" for row in rows]
    same = len({row.steps for row in rows if row.steps}) < 2 and not any(" to " in cell for cell in told)
    return [""] * len(rows) if same else told


def unfinished(row: Row) -> str:
    return ", ".join(f"{count} {state}" for state, count in row.unfinished.items() if count)


def notes(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """What was measured, and how points were chosen."""
    measure = experiment.measure
    larger = [metric for metric in reported(measure) if measure.way(metric) == "maximize"]
    smaller = [metric for metric in reported(measure) if metric not in larger]
    told = [
        f"{', '.join(names)}: {word} is better." for names, word in ((larger, "larger"), (smaller, "smaller")) if names
    ]
    if measure.solved is not None:
        bound = "at least" if reported(measure)[0] in larger else "at most"
        told.append(f"A seed solves the task with {reported(measure)[0]} of {bound} {shown(measure.solved)}.")
    budgets = {(row.points, row.cells) for row in rows if not row.quoted}
    if experiment.tune and len(budgets) == 1:
        points, cells = budgets.pop()
        tried = f"{counted(points, 'point')} ({counted(cells, 'cell')}) for every arm"
        told.append(f"{', '.join(experiment.tune)} chosen by the {measure.statistic} of {measure.select}: {tried}.")
    return told
