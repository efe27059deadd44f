"""Length generalization: test accuracy by sequence length, with the trained lengths marked.

Tasks log it as metrics such as test/accuracy/length_40_79. A line is the median over seeds, the band spans the lowest
to the highest seed.
"""

import math
import re
import statistics
from typing import NamedTuple

from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms, drawn_records, format_seed_counts
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, add_legend, create_figure, truncate_title
from hqlt_lab.report.value_formatting import format_arm_title, format_rounded, join_names_with_value

LENGTH_METRIC = re.compile(r"test/accuracy/length_(\d+)(?:_(\d+))?$")


class LengthBucket(NamedTuple):
    """Range of lengths with one metric."""

    low: int
    high: int
    metric: str

    @property
    def log_midpoint(self) -> float:
        """Midpoint of the range on a logarithmic axis."""
        return math.sqrt(self.low * self.high)

    @property
    def label(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def length_generalization(data: DrawnArms) -> ReportFigure | None:
    """Draw one line per arm, on a logarithmic axis of lengths."""
    buckets_by_arm = {row.title: length_buckets(row) for row in data.drawn_rows}
    all_buckets = sorted({bucket for buckets in buckets_by_arm.values() for bucket in buckets})
    if len(all_buckets) < 2:
        return None
    figure, (panel,) = create_figure(2.9 + 0.1 * len(buckets_by_arm))
    trained = training_lengths(data)
    if trained:
        panel.axvspan(max(trained[0], all_buckets[0].low / 1.5), trained[1], color=MUTED, alpha=0.18, linewidth=0)
        panel.text(trained[1], 0.02, "trained ", ha="right", transform=panel.get_xaxis_transform(), size=9)
    for row in data.drawn_rows:
        values_by_x = {bucket.log_midpoint: bucket_values(row, bucket) for bucket in buckets_by_arm[row.title]}
        line_style, x = data.line_style(row), list(values_by_x)
        medians = [statistics.median(values) for values in values_by_x.values()]
        panel.plot(x, medians, **line_style._asdict(), label=truncate_title(row.title))
        low, high = [min(values) for values in values_by_x.values()], [max(values) for values in values_by_x.values()]
        panel.fill_between(x, low, high, color=line_style.color, alpha=0.15, linewidth=0)
    panel.set_xscale("log", base=2)
    panel.set_xticks([bucket.log_midpoint for bucket in all_buckets], [bucket.label for bucket in all_buckets])
    panel.minorticks_off()
    panel.set(xlabel="test sequence length", ylabel="test/accuracy (%)")
    panel.grid(True, axis="y")
    add_legend(figure, panel)
    trained_note = f" The gray area marks the training lengths, {trained[0]} to {trained[1]}." if trained else ""
    caption = (
        "Test accuracy in percent by sequence length. Lines are medians over seeds "
        f"({format_seed_counts(data.drawn_rows)} per arm), bands span the lowest to the highest seed."
        f"{trained_note}{describe_longest(data, all_buckets[-1])}{data.omitted_note}"
    )
    return ReportFigure(
        name="length_generalization", title="Accuracy by sequence length", caption=caption, figure=figure
    )


def describe_longest(data: DrawnArms, bucket: LengthBucket) -> str:
    """Return a sentence on the arm with the highest median at the longest lengths; empty for a single arm."""
    medians = {format_arm_title(row.title): statistics.median(bucket_values(row, bucket)) for row in data.drawn_rows}
    finite = {title: value for title, value in medians.items() if math.isfinite(value)}
    if len(finite) < 2:
        return ""
    best = max(finite.values())
    return (
        f" Highest median at lengths {bucket.label}: {format_rounded(best, bucket.metric)} "
        f"({join_names_with_value(finite, best, bucket.metric)})."
    )


def length_buckets(row: Row) -> list[LengthBucket]:
    """Return the length ranges of an arm's metrics, shortest first."""
    names = dict.fromkeys(name for record in drawn_records(row) for name in record.metrics)
    matches = [match for name in names if (match := LENGTH_METRIC.match(name))]
    return sorted(LengthBucket(int(match[1]), int(match[2] or match[1]), match[0]) for match in matches)


def bucket_values(row: Row, bucket: LengthBucket) -> list[float]:
    """Return the finite values of the seeds in a length range, or [nan]."""
    values = [record.metrics.get(bucket.metric, math.nan) for record in drawn_records(row)]
    return [value for value in values if math.isfinite(value)] or [math.nan]


def training_lengths(data: DrawnArms) -> tuple[int, int] | None:
    """Return the shortest and longest training length; None if arms differ or the task has no lengths."""
    ranges = {tuple(data.task_config(row).get("train_length") or ()) for row in data.drawn_rows}
    common = ranges.pop() if len(ranges) == 1 else ()
    return (common[0], common[1]) if len(common) == 2 else None
