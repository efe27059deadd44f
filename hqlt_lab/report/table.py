"""The rows as text: columns that say something, and notes that say what they mean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.differences import Difference
from hqlt_lab.report.notes import notes
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.statistics import Summary
from hqlt_lab.report.words import between, chance, counted, shown, signed, tuned
from hqlt_lab.words import in_bytes, in_numbers

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
        **costs(rows),
        "unfinished": [unfinished(row) for row in rows],
    }
    kept = {name: cells for name, cells in columns.items() if name == "arm" or any(cells)}
    return Table(list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)], notes(experiment, rows))


def costs(rows: Sequence[Row]) -> dict[str, Cells]:
    """How large and how fast."""
    return {
        "parameters": [in_numbers(row.parameters) if row.parameters else "" for row in rows],
        "state": [in_bytes(row.state_bytes) if row.state_bytes else "" for row in rows],
        "FLOPs/token": [in_numbers(row.flops_per_token) if row.flops_per_token else "" for row in rows],
        "tokens/s": [in_numbers(row.tokens_per_second) if row.tokens_per_second else "" for row in rows],
    }


def seeds(row: Row) -> str:
    """3, or 2 of 3 where some gave no result (yet)"""
    done = len(row.done)
    return "" if row.quoted else str(done) if done == row.seeds else f"{done} of {row.seeds}"


def metric_columns(rows: Sequence[Row], metric: str, prefix: str) -> dict[str, Cells]:
    """One metric: every summary of it, and what was published."""

    def column(cell: Callable[[Summary, str], str]) -> Cells:
        return [cell(row.summaries[metric], metric) if metric in row.summaries else "" for row in rows]

    def against(cell: Callable[[Difference, str], str]) -> Cells:
        return [cell(row.differences[metric], metric) if metric in row.differences else "" for row in rows]

    return {
        f"{prefix}median ± MAD": column(median),
        f"{prefix}mean [95 %]": column(mean),
        f"{prefix}difference [95 %]": against(difference),
        f"{prefix}verdict": verdicts(rows, metric),
        f"{prefix}best": column(lambda summary, metric: shown(summary.best, metric)),
        f"{prefix}solved": column(lambda summary, metric: "{} of {}".format(*summary.solved) if summary.solved else ""),
        f"{prefix}p (signs)": against(lambda one, metric: chance(one.permutation) if one.n > 1 else ""),
        f"{prefix}p (solved)": against(lambda one, metric: "" if one.fisher is None else chance(one.fisher)),
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


def difference(one: Difference, metric: str) -> str:
    """+3.0 [+0.5, +5.5]"""
    known = one.low is not None
    return signed(one.mean, metric) + (f" [{signed(one.low, metric)}, {signed(one.high, metric)}]" if known else "")


def verdicts(rows: Sequence[Row], metric: str) -> Cells:
    """better, worse, undecided; whom others are compared with is the baseline."""
    found = {row.title: row.differences[metric] for row in rows if metric in row.differences}
    judged = {title: one for title, one in found.items() if one.verdict}
    baselines = {one.baseline for one in judged.values()}
    return [
        verdict(judged[row.title]) if row.title in judged else "baseline" if row.title in baselines else ""
        for row in rows
    ]


def verdict(one: Difference) -> str:
    """undecided, needs about 12 seeds; undecided: below the margin"""
    told = f"{one.verdict}: {one.why}" if one.why else str(one.verdict)
    return f"{told}, needs about {counted(one.needed, 'seed')}" if one.needed else told


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
