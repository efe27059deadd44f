"""An experiment against what was published, row by row, like with like: median with median, best with best.

    inside:   |ours - published| <= reach
    reach   = max(t_{0.975, n-1} s sqrt(1 + 1/n), 3 MAD, 2 std) + half a unit of the last printed digit

The first is how far one more seed of ours would lie from the mean of n in 19 of 20 cases, s their standard deviation: a
published number is a seed, or a few, of the same setup if it was reproduced.  Three seeds reach five s far, ten 2.4.
The others are the published spread, where there is one: 3 MAD are two standard deviations of a normal distribution.  So
`outside` is a contradiction, and `inside` the lack of one; the reach tells how much it would take to contradict.

One seed has no s: its error over test examples stands in where it is known, else the published MAD alone; where there
is neither, nothing can be said.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.report.compare.section import NOTHING, Section
from hqlt_lab.report.compare.subject import Study
from hqlt_lab.report.rows import Row
from hqlt_lab.report.statistics import Direction, Summary, summarise
from hqlt_lab.report.table import Table, median
from hqlt_lab.report.words import counted, shown

OURS = ("median", "mean", "best")  # what a summary of ours has too
SPREADS = ("mad", "std", "seeds")  # no values by themselves
VERDICTS = ("inside", "outside", "no result yet", "no spread known")
COLUMNS = ["arm", "metric", "median ± MAD", "best", "n", "published", "difference", "reach", ""]
RULE = (
    "inside: the difference is at most the reach, which is how far one more seed of ours would lie from the mean of "
    "all in 19 of 20 cases, or 3 published MADs if that is more. Then ours does not contradict what was published, "
    "which with few seeds says little."
)


def against_published(study: Study) -> Section:
    """A line for every number that the file has."""
    experiment = study.experiment
    if not experiment.published:
        raise ConfigError(
            f"{study.name}: has no `published:` values to be compared with. Add them, or name a second study or file."
        )
    entries = [
        entry
        for row in study.rows.values()
        for metric, values in row.published.items()
        for entry in entries_of(row, metric, values, experiment.measure.way(metric), experiment.measure.statistic)
    ]
    rows = [line(entry) for entry in entries]
    return Section(name="published", said=[summary_of(entries)], table=Table(COLUMNS, rows, [RULE]), entries=entries)


def entries_of(
    row: Row, metric: str, published: Mapping[str, Any], way: Direction, statistic: str
) -> list[dict[str, Any]]:
    """Each published number of an arm and a metric."""
    values = list(row.by_seed(metric).values())
    ours = row.summaries.get(metric) or summarise(values, way)
    reach = reach_of(values, ours, published)
    found: list[dict[str, Any]] = []
    for word, value in published.items():
        if word not in SPREADS and isinstance(value, int | float):
            mine = getattr(ours, word if word in OURS else statistic) if ours else None
            wide = None if mine is None or reach is None else reach + rounding(value)
            told = {
                "arm": row.title,
                "metric": metric,
                "n": len(values),
                "ours": ours,
                "word": word,
                "published": value,
            }
            gap = None if mine is None else mine - value
            found.append(told | {"difference": gap, "reach": wide, "verdict": verdict(gap, wide)})
    return [one | {"ours": vars_of(one["ours"]), "mad": published.get("mad")} for one in found]


def reach_of(values: Sequence[float], ours: Summary | None, published: Mapping[str, Any]) -> float | None:
    """How far a number may be away; None: nothing is known of any spread."""
    reaches = [times * published[word] for word, times in (("mad", 3), ("std", 2)) if word in published]
    if len(values) > 1:
        from scipy.special import stdtrit

        spread = statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
        reaches.append(float(stdtrit(len(values) - 1, 0.975)) * spread)
    elif ours is not None and ours.low is not None and ours.high is not None:
        reaches.append((ours.high - ours.low) / 2)
    return max(reaches) if reaches else None


def rounding(value: float) -> float:
    """Half a unit of the last digit that was printed: 99.7 may have been 99.749, and 27 have been 27.4."""
    if isinstance(value, int):
        return 0.5
    digits = repr(value).partition(".")[2]
    return 0.5 * 10.0 ** -len(digits) if digits.isdigit() else 0.0


def verdict(gap: float | None, reach: float | None) -> str:
    if gap is None:
        return "no result yet"
    if reach is None:
        return "no spread known"
    return "inside" if abs(gap) <= reach + 1e-9 else "outside"


def summary_of(entries: Sequence[Mapping[str, Any]]) -> str:
    """Of 8 published numbers: 5 inside, 1 outside, 2 no result yet."""
    counts = Counter(entry["verdict"] for entry in entries)
    told = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    numbers = counted(len(entries), "published number")
    return f"Of {numbers}: {told}." if told else "Nothing that was published is a number."


def line(entry: Mapping[str, Any]) -> list[str]:
    """An entry for people."""
    metric, ours = entry["metric"], entry["ours"]
    spread = f" ± {shown(entry['mad'], metric)}" if entry["word"] == "median" and entry["mad"] is not None else ""
    return [
        entry["arm"],
        metric,
        median(Summary(**ours), metric) if ours else NOTHING,
        shown(ours["best"], metric) if ours else NOTHING,
        str(entry["n"]),
        f"{entry['word']} {shown(entry['published'], metric)}{spread}",
        number(entry["difference"], metric),
        number(entry["reach"], metric),
        entry["verdict"],
    ]


def number(value: float | None, metric: str) -> str:
    return NOTHING if value is None else shown(value, metric)


def vars_of(summary: Summary | None) -> dict[str, Any] | None:
    return None if summary is None else dict(vars(summary))
