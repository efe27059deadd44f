"""What came of them, side by side; differences are to the first."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hqlt_lab.report.compare.section import NOTHING, Section
from hqlt_lab.report.compare.subject import Study, Trained
from hqlt_lab.report.compare.two_samples import Gap, gap
from hqlt_lab.report.protocols import protocols
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.statistics import Summary, summarise
from hqlt_lab.report.table import Table, median
from hqlt_lab.report.words import joined, shown

COSTS = ("step", "seconds", "tokens_per_second", "parameters", "state_bytes", "flops_per_token")


def cells_came_to(cells: Sequence[Trained]) -> Section:
    """A line per metric, then what it cost."""
    unfinished = [cell.name for cell in cells if cell.outcome is None]
    said = [f"{joined(unfinished, 6)} {'has' if len(unfinished) == 1 else 'have'} no result yet."] if unfinished else []
    said += [
        f"{cell.name} {cell.outcome.status}: {cell.outcome.message}".rstrip(": ")
        + ("" if cell.outcome.message else ".")
        for cell in cells
        if cell.outcome and cell.outcome.status != "done"
    ]
    told = [numbers(cell) for cell in cells]
    entries: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for one in told for name in one):
        values = [one.get(name) for one in told]
        gaps = [less(value, values[0]) for value in values[1:]]
        entries.append({"name": name, "values": values, "differences": [None, *gaps]})
    columns = ["", *(cell.name for cell in cells), *differences([cell.name for cell in cells])]
    rows = [
        [entry["name"], *(number(value, entry["name"]) for value in [*entry["values"], *entry["differences"][1:]])]
        for entry in entries
    ]
    return Section(name="results", said=said, table=Table(columns, rows) if rows else None, entries=entries)


def numbers(cell: Trained) -> dict[str, float]:
    """Metrics and costs by name."""
    if cell.outcome is None:
        return {}
    costs = {name: getattr(cell.outcome, name) for name in COSTS}
    return dict(cell.outcome.metrics) | {name: cost for name, cost in costs.items() if cost}  # 0: it was not counted


def differences(names: Sequence[str]) -> list[str]:
    """What the columns of differences to the first are called."""
    return ["difference"] if len(names) == 2 else [f"difference of {name}" for name in names[1:]]


def less(value: Any, first: Any) -> float | None:
    return None if value is None or first is None else value - first


def number(value: float | None, metric: str) -> str:
    return NOTHING if value is None else shown(value, metric)


def studies_came_to(studies: Sequence[Study]) -> Section:
    """A line per arm that several have and metric, each arm at the point it is judged by."""
    entries, rows, apart = [], [], set[str]()
    metrics = list(dict.fromkeys(metric for study in studies for metric in reported(study.experiment.measure)))
    shared = [title for title in studies[0].rows if any(title in study.rows for study in studies[1:])]
    for title in shared:
        found = [study.rows.get(title) for study in studies]
        for metric in metrics:
            others = asked_otherwise(found, metric)
            apart |= {f"{metric}: {studies[place].name}" for place in others}
            rows_alike = [None if place in others else row for place, row in enumerate(found)]
            values = [row.by_seed(metric) if row else {} for row in rows_alike]
            # a metric that only the other one reports is known here all the same
            summaries = [
                (row.summaries.get(metric) if row else None)
                or summarise(list(one.values()), study.experiment.measure.way(metric))
                for study, row, one in zip(studies, rows_alike, values, strict=True)
            ]
            gaps = [gap(values[0], one) for one in values[1:]]
            if any(summaries):
                entries.append(entry(title, metric, summaries, gaps))
                name = title if len(metrics) == 1 else f"{title}: {metric}"
                rows.append(
                    [name, *(told(one, metric) for one in summaries), *(difference(one, metric) for one in gaps)]
                )
    names = [study.name for study in studies]
    columns = ["arm", *names, *(f"{column} [95 %]" for column in differences(names))]
    said = [f"By {joined(metrics, 6)}: median ± MAD (seeds), and the difference of means."] if rows else []
    said += [] if rows else ["No arm of the same title has results in several of them."]
    said += [f"{one} was asked otherwise than {studies[0].name}, and is left out." for one in sorted(apart)]
    return Section(name="results", said=said, table=Table(columns, rows) if rows else None, entries=entries)


def asked_otherwise(rows: Sequence[Row | None], metric: str) -> set[int]:
    """Places of those whose numbers of lm-eval were made in another way than the first's."""
    ways = [protocols(row.records).get(metric) if row else None for row in rows]
    return {place for place, way in enumerate(ways) if None not in (way, ways[0]) and way != ways[0]}


def entry(title: str, metric: str, summaries: Sequence[Summary | None], gaps: Sequence[Gap | None]) -> dict[str, Any]:
    return {
        "arm": title,
        "metric": metric,
        "summaries": [asdict(one) if one else None for one in summaries],
        "differences": [None, *(asdict(one) if one else None for one in gaps)],
    }


def told(summary: Summary | None, metric: str) -> str:
    """99.7 ± 0.1 (3)"""
    return f"{median(summary, metric)} ({summary.n})" if summary else NOTHING


def difference(found: Gap | None, metric: str) -> str:
    """-0.3 [-0.9, 0.3], paired by seed"""
    if found is None:
        return NOTHING
    if found.low is None:
        return shown(found.mean, metric)
    return f"{shown(found.mean, metric)} [{shown(found.low, metric)}, {shown(found.high, metric)}], {found.how}"
