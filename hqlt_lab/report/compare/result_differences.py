"""Compare the results of cells or studies; differences are relative to the first one."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.build_tables import Table, format_median
from hqlt_lab.report.compare.comparison_section import EMPTY_CELL, ComparisonSection
from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy
from hqlt_lab.report.compare.mean_difference import MeanDifference, mean_difference
from hqlt_lab.report.lm_eval_protocol_filter import majority_protocols
from hqlt_lab.report.stats.summary import Summary, summarize_seeds
from hqlt_lab.report.value_formatting import format_rounded, join_names
from hqlt_lab.stats.metric_scale import accuracy_resolution, metric_resolution
from hqlt_lab.stats.proportion_intervals import percent_range

COST_FIELDS = ("step", "seconds", "tokens_per_second", "parameters", "state_bytes", "flops_per_token")


def compare_cell_results(cells: Sequence[ComparedCell]) -> ComparisonSection:
    """Return the section on results of cells: one line per metric, then costs."""
    unfinished = [cell.name for cell in cells if cell.outcome is None]
    sentences = (
        [f"{join_names(unfinished, 6)} {'has' if len(unfinished) == 1 else 'have'} no result yet."]
        if unfinished
        else []
    )
    sentences += [
        f"{cell.name} {cell.outcome.status}: {cell.outcome.message}".rstrip(": ")
        + ("" if cell.outcome.message else ".")
        for cell in cells
        if cell.outcome and cell.outcome.status != "done"
    ]
    numbers_by_cell = [cell_numbers(cell) for cell in cells]
    entries: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for numbers in numbers_by_cell for name in numbers):
        values = [numbers.get(name) for numbers in numbers_by_cell]
        differences = [subtract_or_none(value, values[0]) for value in values[1:]]
        entries.append({"name": name, "values": values, "differences": [None, *differences]})
    columns = ["", *(cell.name for cell in cells), *difference_columns([cell.name for cell in cells])]
    rows = [
        [
            entry["name"],
            *(format_or_empty(value, entry["name"]) for value in [*entry["values"], *entry["differences"][1:]]),
        ]
        for entry in entries
    ]
    return ComparisonSection(
        name="results", sentences=sentences, table=Table(columns, rows) if rows else None, entries=entries
    )


def cell_numbers(cell: ComparedCell) -> dict[str, float]:
    """Return the metrics and costs of a cell by name."""
    if cell.outcome is None:
        return {}
    costs = {name: getattr(cell.outcome, name) for name in COST_FIELDS}
    return dict(cell.outcome.metrics) | {name: cost for name, cost in costs.items() if cost}  # 0: not measured


def difference_columns(names: Sequence[str]) -> list[str]:
    """Return the headings of the columns of differences from the first target."""
    return ["difference"] if len(names) == 2 else [f"difference of {name}" for name in names[1:]]


def subtract_or_none(value: Any, reference: Any) -> float | None:
    return None if value is None or reference is None else value - reference


def format_or_empty(value: float | None, metric: str) -> str:
    return EMPTY_CELL if value is None else format_rounded(value, metric)


def compare_study_results(studies: Sequence[ComparedStudy]) -> ComparisonSection:
    """Return the section on results of studies: one line per shared arm and metric, at each arm's selected point."""
    entries, rows, excluded = [], [], set[str]()
    metrics = list(dict.fromkeys(metric for study in studies for metric in reported_metrics(study.experiment.measure)))
    shared = [title for title in studies[0].rows_by_arm if any(title in study.rows_by_arm for study in studies[1:])]
    resolutions = {metric: shared_resolution(studies, metric) for metric in metrics}
    for title in shared:
        arm_rows = [study.rows_by_arm.get(title) for study in studies]
        for metric in metrics:
            other_protocols = other_protocol_indices(arm_rows, metric)
            excluded |= {f"{metric}: {studies[index].name}" for index in other_protocols}
            comparable = [None if index in other_protocols else row for index, row in enumerate(arm_rows)]
            values = [row.values_by_seed(metric) if row else {} for row in comparable]
            ranges = [
                (row.percent_ranges.get(metric) if row else None) or percent_range(metric, None) for row in comparable
            ]
            # rows have summaries of reported metrics only, but the values of all metrics
            summaries = [
                (row.summaries.get(metric) if row else None)
                or summarize_seeds(
                    list(by_seed.values()),
                    study.experiment.measure.metric_direction(metric),
                    value_range=value_range,
                    resolution=resolutions[metric],
                )
                for study, row, by_seed, value_range in zip(studies, comparable, values, ranges, strict=True)
            ]
            differences = [
                mean_difference(values[0], by_seed, resolutions[metric], ranges[0], value_range)
                for by_seed, value_range in zip(values[1:], ranges[1:], strict=True)
            ]
            if any(summaries):
                entries.append(result_entry(title, metric, summaries, differences))
                name = title if len(metrics) == 1 else f"{title}: {metric}"
                rows.append(
                    [
                        name,
                        *(format_summary(summary, metric) for summary in summaries),
                        *(format_mean_difference(difference, metric) for difference in differences),
                    ]
                )
    names = [study.name for study in studies]
    columns = ["arm", *names, *(f"{column} [95 % CI]" for column in difference_columns(names))]
    sentences = (
        [f"{join_names(metrics, 6)}: median ± MAD (number of seeds), and the difference of means."] if rows else []
    )
    sentences += [] if rows else ["No arm has results in several of these studies."]
    sentences += [
        f"{name} omitted, because its lm-eval protocol differs from that of {studies[0].name}."
        for name in sorted(excluded)
    ]
    return ComparisonSection(
        name="results", sentences=sentences, table=Table(columns, rows) if rows else None, entries=entries
    )


def shared_resolution(studies: Sequence[ComparedStudy], metric: str) -> float:
    """Return the step that the values of a metric are rounded to, of the study with the fewest test examples."""
    rows = [row for study in studies for row in study.rows_by_arm.values()]
    values = [value for row in rows for value in row.values_by_seed(metric).values()]
    return metric_resolution(metric, max(accuracy_resolution(study.experiment) for study in studies), values)


def other_protocol_indices(rows: Sequence[Row | None], metric: str) -> set[int]:
    """Return the indices of rows whose lm-eval protocol of the metric differs from that of the first row."""
    protocols = [majority_protocols(row.records).get(metric) if row else None for row in rows]
    return {
        index
        for index, protocol in enumerate(protocols)
        if None not in (protocol, protocols[0]) and protocol != protocols[0]
    }


def result_entry(
    title: str, metric: str, summaries: Sequence[Summary | None], differences: Sequence[MeanDifference | None]
) -> dict[str, Any]:
    return {
        "arm": title,
        "metric": metric,
        "summaries": [asdict(summary) if summary else None for summary in summaries],
        "differences": [None, *(asdict(difference) if difference else None for difference in differences)],
    }


def format_summary(summary: Summary | None, metric: str) -> str:
    """Return the median, MAD and number of seeds, e.g. "99.7 ± 0.1 (3)"."""
    return f"{format_median(summary, metric)} ({summary.n})" if summary else EMPTY_CELL


def format_mean_difference(difference: MeanDifference | None, metric: str) -> str:
    """Return e.g. "-0.3 [-0.9, 0.3], paired by seed"."""
    if difference is None:
        return EMPTY_CELL
    if difference.low is None:
        return format_rounded(difference.mean, metric)
    low, high = format_rounded(difference.low, metric), format_rounded(difference.high, metric)
    return f"{format_rounded(difference.mean, metric)} [{low}, {high}], {difference.method}"
