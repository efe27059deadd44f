"""The metric against cost: one point per arm, and the Pareto front.

Shows each cost that differs between arms: parameters, bytes of decoding state, FLOPs per token.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hqlt_lab.formatting import format_bytes, format_count
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms, format_seed_counts
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, add_legend, create_figure, truncate_title
from hqlt_lab.report.value_formatting import join_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COST_AXES: dict[str, tuple[Callable[[Row], float], Callable[[float], str]]] = {
    "parameters": (lambda row: row.parameters, format_count),
    "bytes of state": (lambda row: row.state_bytes, format_bytes),
    "FLOPs per token": (lambda row: row.flops_per_token, format_count),
}
MAX_POINTS, MIN_COST_DIFFERENCE = 200, 0.02


def cost_quality(data: DrawnArms) -> ReportFigure | None:
    """Draw a panel for each cost that differs between arms."""
    rows = [row for row in data.finished_rows if data.row_value(row) is not None]
    names = [
        name
        for name, (cost, _) in COST_AXES.items()
        if has_distinct_costs([cost(row) for row in rows if cost(row) > 0])
    ]
    if not names:
        return None
    styled_titles = {row.title for row in data.drawn_rows}
    rows = [row for number, row in enumerate(rows) if row.title in styled_titles or number < MAX_POINTS]
    figure, panels = create_figure(2.3 * len(names) + 0.5 + 0.1 * len(styled_titles), rows=len(names))
    for panel, name in zip(panels, names, strict=True):
        draw_cost_panel(panel, name, rows, data)
    add_legend(figure, panels[0])
    bars = "the 95 % confidence interval" if data.experiment.measure.statistic == "mean" else "lowest to highest seed"
    gray_note = " Gray points are arms that are not named." if len(rows) > len(styled_titles) else ""
    caption = (
        f"{data.metric} ({data.experiment.measure.statistic} over {format_seed_counts(rows)}; bars: {bars}) against "
        f"{join_names(names, len(names))}, on a logarithmic axis. The dashed line is the Pareto front: arms for which "
        f"no other arm is both cheaper and better. {describe_fronts(names, rows, data)}{gray_note}"
    )
    return ReportFigure(name="cost_quality", title="Results against cost", caption=caption, figure=figure)


def describe_fronts(names: Sequence[str], rows: Sequence[Row], data: DrawnArms) -> str:
    """Return which arms are on each Pareto front, e.g. "On the front: delta (parameters), linear (bytes of state)."."""
    fronts = []
    for name in names:
        cost, _ = COST_AXES[name]
        points = {row.title: (cost(row), data.row_value(row) or 0.0) for row in rows if cost(row) > 0}
        front = set(pareto_front(list(points.values()), data.higher_is_better))
        fronts.append(f"{join_names([title for title, point in points.items() if point in front], 6)} ({name})")
    return f"On the front: {'; '.join(fronts)}."


def has_distinct_costs(costs: Sequence[float]) -> bool:
    """Return whether costs differ enough to be visible in a figure."""
    return max(costs, default=0.0) > (1 + MIN_COST_DIFFERENCE) * min(costs, default=0.0)


def draw_cost_panel(panel: "Axes", name: str, rows: Sequence[Row], data: DrawnArms) -> None:
    """Draw the metric against one cost."""
    cost, format_cost = COST_AXES[name]
    points = {row.title: (cost(row), data.row_value(row) or 0.0) for row in rows if cost(row) > 0}
    front = pareto_front(list(points.values()), data.higher_is_better)
    panel.plot(*zip(*front, strict=True), color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    for row in rows:
        if row.title in points:
            (x, y), style = points[row.title], data.line_style(row)
            low, high = value_range(row, data)
            label = truncate_title(row.title) if row.title in data.line_styles else None
            panel.plot([x, x], [low, high], color=style.color, linewidth=1.2, alpha=0.6, zorder=2)
            panel.plot([x], [y], marker=style.marker, color=style.color, linestyle="none", label=label, zorder=3)
    panel.set_xscale("log")
    ticks = cost_ticks([x for x, _ in points.values()])
    panel.set_xticks(ticks, [format_cost(tick) for tick in ticks])
    panel.minorticks_off()
    panel.set(xlabel=name, ylabel=data.metric)
    panel.margins(x=0.08)
    panel.grid(True)


def value_range(row: Row, data: DrawnArms) -> tuple[float, float]:
    """Return the ends of an arm's error bar: the interval of a mean, else the lowest and highest seed."""
    summary = row.summaries[data.metric]
    if data.experiment.measure.statistic == "mean":
        has_interval = summary.low is not None and summary.high is not None
        return (summary.low, summary.high) if has_interval else (summary.mean, summary.mean)  # type: ignore[return-value]
    values = [record.metrics.get(data.metric, math.nan) for record in row.finished_records]
    values = [value for value in values if math.isfinite(value)] or [summary.median]
    return min(values), max(values)


def pareto_front(points: Sequence[tuple[float, float]], higher_is_better: bool) -> list[tuple[float, float]]:
    """Return the points that are better than all cheaper or equally cheap points, cheapest first."""
    sign = 1 if higher_is_better else -1
    front: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not front or sign * y > sign * front[-1][1]:
            front.append((x, y))
    return front


def cost_ticks(values: Sequence[float]) -> list[float]:
    """Return the smallest and largest value and their geometric mean; powers of ten would be too sparse."""
    low, high = min(values), max(values)
    return [low, math.sqrt(low * high), high] if high > 1.15 * low else [low, high]
