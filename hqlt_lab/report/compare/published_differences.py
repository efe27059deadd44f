"""Compare the results of a study with published values: median with median, best with best.

    inside:   |ours - published| <= reach
    reach   = max(t_{0.975, n-1} s sqrt(1 + 1/n), 3 MAD, 2 std) + half a unit of the last printed digit

The first term is the 95 % prediction interval of one more seed, where s is the standard deviation of our n seeds: if
the setup was reproduced, a published value is one or a few more seeds of it. With three seeds it is 5 s, with ten
2.4 s. The other terms are the published spread, if any: 3 MAD are two standard deviations of a normal distribution.
`outside` means that our results contradict the published value; `inside` only means that they do not, and `reach` shows
how large a contradiction would have to be.

A single seed has no s: the interval over its test examples is used if known, and the published spread. Without either
there is no verdict.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.build_tables import Table, format_median
from hqlt_lab.report.compare.comparison_section import EMPTY_CELL, ComparisonSection
from hqlt_lab.report.compare.comparison_targets import ComparedStudy
from hqlt_lab.report.stats.summary import Direction, Summary, summarize_seeds
from hqlt_lab.report.value_formatting import format_rounded

SUMMARY_STATISTICS = ("median", "mean", "best")  # statistics that our summaries have too
SPREAD_FIELDS = ("mad", "std", "seeds")  # fields of `published` that are not values to compare
VERDICTS = ("inside", "outside", "no result yet", "no spread known")
COLUMNS = ["arm", "metric", "median ± MAD", "best", "n", "published", "difference", "reach", "verdict"]
RULE_NOTE = (
    "inside: the difference is at most the reach, so our results do not contradict the published value. The reach is "
    "the half-width of the 95 % prediction interval of one more seed, or 3 published MADs if that is larger. With few "
    'seeds the reach is large, and "inside" is weak evidence.'
)


def compare_with_published(study: ComparedStudy) -> ComparisonSection:
    """Return the section with one line per published value. Raise ConfigError if there are none."""
    experiment = study.experiment
    if not experiment.published:
        message = f"the study {study.name!r} has no published values to compare with."
        raise ConfigError.at("published", "nothing_published", message, "Add them, or name a second study or file.")
    entries = [
        entry
        for row in study.rows_by_arm.values()
        for metric, values in row.published_values.items()
        for entry in published_entries(
            row, metric, values, experiment.measure.metric_direction(metric), experiment.measure.statistic
        )
    ]
    rows = [published_row(entry) for entry in entries]
    return ComparisonSection(
        name="published", sentences=[describe_counts(entries)], table=Table(COLUMNS, rows, [RULE_NOTE]), entries=entries
    )


def published_entries(
    row: Row, metric: str, published: Mapping[str, Any], direction: Direction, statistic: str
) -> list[dict[str, Any]]:
    """Return an entry for each published value of one arm and metric."""
    values = list(row.values_by_seed(metric).values())
    ours = row.summaries.get(metric) or summarize_seeds(values, direction)
    reach = allowed_difference(values, ours, published)
    entries: list[dict[str, Any]] = []
    for name, value in published.items():
        if name not in SPREAD_FIELDS and isinstance(value, int | float):
            our_value = getattr(ours, name if name in SUMMARY_STATISTICS else statistic) if ours else None
            value_reach = None if our_value is None or reach is None else reach + rounding_error(value)
            entry = {
                "arm": row.title,
                "metric": metric,
                "n": len(values),
                "ours": ours,
                "statistic": name,
                "published": value,
            }
            difference = None if our_value is None else our_value - value
            verdict = published_verdict(difference, value_reach)
            entries.append(entry | {"difference": difference, "reach": value_reach, "verdict": verdict})
    return [entry | {"ours": summary_to_dict(entry["ours"]), "mad": published.get("mad")} for entry in entries]


def allowed_difference(values: Sequence[float], ours: Summary | None, published: Mapping[str, Any]) -> float | None:
    """Return how far a published value may differ from ours; None if no spread is known."""
    reaches = [factor * published[name] for name, factor in (("mad", 3), ("std", 2)) if name in published]
    if len(values) > 1:
        from scipy.special import stdtrit

        prediction_error = statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
        reaches.append(float(stdtrit(len(values) - 1, 0.975)) * prediction_error)
    elif ours is not None and ours.low is not None and ours.high is not None:
        reaches.append((ours.high - ours.low) / 2)
    return max(reaches) if reaches else None


def rounding_error(value: float) -> float:
    """Return half a unit of the last printed digit: 99.7 may have been 99.749, and 27 may have been 27.4."""
    if isinstance(value, int):
        return 0.5
    digits = repr(value).partition(".")[2]
    return 0.5 * 10.0 ** -len(digits) if digits.isdigit() else 0.0


def published_verdict(difference: float | None, reach: float | None) -> str:
    if difference is None:
        return "no result yet"
    if reach is None:
        return "no spread known"
    return "inside" if abs(difference) <= reach + 1e-9 else "outside"


def describe_counts(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return e.g. "Of 8 published numbers: 5 inside, 1 outside, 2 no result yet."."""
    counts = Counter(entry["verdict"] for entry in entries)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    numbers = pluralize_count(len(entries), "published number")
    return f"Of {numbers}: {verdicts}." if verdicts else "No published value is a number."


def published_row(entry: Mapping[str, Any]) -> list[str]:
    """Return the table cells of an entry."""
    metric, ours = entry["metric"], entry["ours"]
    published_mad = (
        f" ± {format_rounded(entry['mad'], metric)}"
        if entry["statistic"] == "median" and entry["mad"] is not None
        else ""
    )
    return [
        entry["arm"],
        metric,
        format_median(Summary(**ours), metric) if ours else EMPTY_CELL,
        format_rounded(ours["best"], metric) if ours else EMPTY_CELL,
        str(entry["n"]),
        f"{entry['statistic']} {format_rounded(entry['published'], metric)}{published_mad}",
        format_or_empty(entry["difference"], metric),
        format_or_empty(entry["reach"], metric),
        entry["verdict"],
    ]


def format_or_empty(value: float | None, metric: str) -> str:
    return EMPTY_CELL if value is None else format_rounded(value, metric)


def summary_to_dict(summary: Summary | None) -> dict[str, Any] | None:
    return None if summary is None else dict(vars(summary))
