"""What quality costs: one point per arm, and the front that no other arm beats in both.

Costs are those that differ between the arms: parameters, bytes of state that decoding carries on, FLOPs per token.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hqlt_lab.report.figures.material import Material, seeds_told
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import FAINT, cut, legend, sheet
from hqlt_lab.report.rows import Row
from hqlt_lab.words import in_bytes, in_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COSTS: dict[str, tuple[Callable[[Row], float], Callable[[float], str]]] = {
    "parameters": (lambda row: row.parameters, in_numbers),
    "bytes of state": (lambda row: row.state_bytes, in_bytes),
    "FLOPs per token": (lambda row: row.flops_per_token, in_numbers),
}
MOST, LEAST = 200, 0.02


def cost_quality(material: Material) -> Picture | None:
    """A panel for each cost."""
    rows = [row for row in material.finished if material.value(row) is not None]
    names = [name for name, (cost, _) in COSTS.items() if differ([cost(row) for row in rows if cost(row) > 0])]
    if not names:
        return None
    drawn = {row.title for row in material.drawn}
    rows = [row for number, row in enumerate(rows) if row.title in drawn or number < MOST]
    figure, panels = sheet(2.3 * len(names) + 0.5 + 0.1 * len(drawn), rows=len(names))
    for panel, name in zip(panels, names, strict=True):
        draw(panel, name, rows, material)
    legend(figure, panels[0])
    reach = "the 95 % interval" if material.experiment.measure.statistic == "mean" else "from lowest to highest seed"
    rest = " Grey points are the other arms." if len(rows) > len(drawn) else ""
    caption = (
        f"{material.metric} ({material.experiment.measure.statistic} over {seeds_told(rows)}, bars: {reach}) against "
        f"cost, on a logarithmic axis. The dashed line joins the arms that no other one beats in both.{rest}"
    )
    return Picture(name="cost_quality", title="What quality costs", caption=caption, figure=figure)


def differ(costs: Sequence[float]) -> bool:
    """By more than a figure can show as nothing."""
    return max(costs, default=0.0) > (1 + LEAST) * min(costs, default=0.0)


def draw(panel: "Axes", name: str, rows: Sequence[Row], material: Material) -> None:
    """One cost."""
    cost, words = COSTS[name]
    points = {row.title: (cost(row), material.value(row) or 0.0) for row in rows if cost(row) > 0}
    edge = front(list(points.values()), material.upwards)
    panel.plot(*zip(*edge, strict=True), color=FAINT, linestyle="--", linewidth=1.2, zorder=1)
    for row in rows:
        if row.title in points:
            (x, y), look = points[row.title], material.look(row)
            low, high = reach_of(row, material)
            named = cut(row.title) if row.title in material.looks else None
            panel.plot([x, x], [low, high], color=look.color, linewidth=1.2, alpha=0.6, zorder=2)
            panel.plot([x], [y], marker=look.marker, color=look.color, linestyle="none", label=named, zorder=3)
    panel.set_xscale("log")
    ticks = rounded_ticks([x for x, _ in points.values()])
    panel.set_xticks(ticks, [words(tick) for tick in ticks])
    panel.minorticks_off()
    panel.set(xlabel=name, ylabel=material.metric)
    panel.margins(x=0.08)
    panel.grid(True)


def reach_of(row: Row, material: Material) -> tuple[float, float]:
    """Of the mean its interval, of anything else the seeds from the lowest to the highest."""
    summary = row.summaries[material.metric]
    if material.experiment.measure.statistic == "mean":
        known = summary.low is not None and summary.high is not None
        return (summary.low, summary.high) if known else (summary.mean, summary.mean)  # type: ignore[return-value]
    values = [record.metrics.get(material.metric, math.nan) for record in row.done]
    values = [value for value in values if math.isfinite(value)] or [summary.median]
    return min(values), max(values)


def front(points: Sequence[tuple[float, float]], upwards: bool) -> list[tuple[float, float]]:
    """Those that are better than everything as cheap, from the cheapest on."""
    sign = 1 if upwards else -1
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not kept or sign * y > sign * kept[-1][1]:
            kept.append((x, y))
    return kept


def rounded_ticks(values: Sequence[float]) -> list[float]:
    """The smallest, the largest and one between: costs of arms differ by too little for powers of ten."""
    low, high = min(values), max(values)
    return [low, math.sqrt(low * high), high] if high > 1.15 * low else [low, high]
