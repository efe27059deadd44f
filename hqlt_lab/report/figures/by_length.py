"""Where it ends to hold: accuracy by the length of the test, and which lengths were trained.

Tasks tell it in metrics such as test/accuracy/length_40_79; a line is the median over seeds, the band reaches from the
lowest to the highest one.
"""

import math
import re
import statistics
from typing import NamedTuple

from hqlt_lab.report.figures.material import Material, seeds_of, seeds_told
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import FAINT, cut, legend, sheet
from hqlt_lab.report.rows import Row

NAME = re.compile(r"test/accuracy/length_(\d+)(?:_(\d+))?$")


class Bucket(NamedTuple):
    """Lengths that are told together."""

    low: int
    high: int
    metric: str

    @property
    def middle(self) -> float:
        """On an axis where each doubling is a step."""
        return math.sqrt(self.low * self.high)

    @property
    def words(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def by_length(material: Material) -> Picture | None:
    """One line per arm, on doubling lengths."""
    found = {row.title: buckets(row) for row in material.drawn}
    shown = sorted({bucket for buckets in found.values() for bucket in buckets})
    if len(shown) < 2:
        return None
    figure, (panel,) = sheet(2.9 + 0.1 * len(found))
    trained = trained_lengths(material)
    if trained:
        panel.axvspan(max(trained[0], shown[0].low / 1.5), trained[1], color=FAINT, alpha=0.18, linewidth=0)
        panel.text(trained[1], 0.02, "trained ", ha="right", transform=panel.get_xaxis_transform(), size=9)
    for row in material.drawn:
        spans = {bucket.middle: seeds_at(row, bucket) for bucket in found[row.title]}
        look, middles = material.look(row), list(spans)
        medians = [statistics.median(values) for values in spans.values()]
        panel.plot(middles, medians, **look._asdict(), label=cut(row.title))
        low, high = [min(values) for values in spans.values()], [max(values) for values in spans.values()]
        panel.fill_between(middles, low, high, color=look.color, alpha=0.15, linewidth=0)
    panel.set_xscale("log", base=2)
    panel.set_xticks([bucket.middle for bucket in shown], [bucket.words for bucket in shown])
    panel.minorticks_off()
    panel.set(xlabel="length of the test", ylabel="test/accuracy (%)")
    panel.grid(True, axis="y")
    legend(figure, panel)
    grey = f" Grey lengths, {trained[0]} to {trained[1]}, were trained; others are extrapolation." if trained else ""
    caption = (
        f"Accuracy on test sequences of each length, in percent: the median over {seeds_told(material.drawn)} per arm, "
        f"the band from the lowest to the highest.{grey}{material.left_out}"
    )
    return Picture(name="by_length", title="Up to which length it holds", caption=caption, figure=figure)


def buckets(row: Row) -> list[Bucket]:
    """From the shortest to the longest."""
    names = dict.fromkeys(name for record in seeds_of(row) for name in record.metrics)
    matches = [match for name in names if (match := NAME.match(name))]
    return sorted(Bucket(int(match[1]), int(match[2] or match[1]), match[0]) for match in matches)


def seeds_at(row: Row, bucket: Bucket) -> list[float]:
    """The seeds that had a test of such a length; a bucket is there because one had."""
    values = [record.metrics.get(bucket.metric, math.nan) for record in seeds_of(row)]
    return [value for value in values if math.isfinite(value)] or [math.nan]


def trained_lengths(material: Material) -> tuple[int, int] | None:
    """The shortest and the longest; None where arms were trained on different ones, or the task has no lengths."""
    ranges = {tuple(material.task(row).get("train_length") or ()) for row in material.drawn}
    only = ranges.pop() if len(ranges) == 1 else ()
    return (only[0], only[1]) if len(only) == 2 else None
