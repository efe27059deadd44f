"""Long-context figure: one panel for each curve measured by `hqlt evaluate --long`.

A line is the median over seeds, the band spans the lowest to the highest seed. The dotted line marks the largest value
seen in training.
"""

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from hqlt_lab.formatting import format_bytes
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms, drawn_records
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, add_legend, create_figure, truncate_title
from hqlt_lab.rundir.evaluations import LongContextCurve, read_long_context_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXIS_LABELS = {
    "loss": "loss (nats per token)",
    "accuracy": "accuracy (%)",
    "needle": "needles found (%)",
    "milliseconds_per_token": "ms per token",
    "state_bytes": "state",
    "position": "position (tokens)",
    "distance": "distance (tokens)",
    "gap": "blanks between pairs and questions",
    "context": "context (tokens)",
    "length": "length (tokens)",
}
COST_FORMATS: dict[str, Callable[[float], str]] = {"state_bytes": format_bytes, "milliseconds_per_token": "{:g}".format}
LOG_AXIS_RATIO = 20  # costs that grow by a larger factor get a logarithmic axis
SeedCurves = list[LongContextCurve]  # the same curve, one per seed


def long_context(data: DrawnArms) -> ReportFigure | None:
    """Draw one panel per curve, with one line per arm."""
    curves_by_arm = {row.title: curves_by_title(row) for row in data.drawn_rows}
    titles = list(dict.fromkeys(title for curves in curves_by_arm.values() for title in curves))
    if not titles:
        return None
    figure, panels = create_figure(2.1 * len(titles) + 0.1 * len(curves_by_arm), rows=len(titles))
    for panel, title in zip(panels, titles, strict=True):
        for row in data.drawn_rows:
            if seed_curves := curves_by_arm[row.title].get(title):
                draw_curves(panel, seed_curves, row, data)
        format_panel(panel, [curve for curves in curves_by_arm.values() for curve in curves.get(title, [])])
    add_legend(figure, panels[0])
    caption = (
        "Results of `hqlt evaluate --long`. Lines are medians over the evaluated seeds, bands span the lowest to the "
        f"highest seed. The dotted line marks the largest value seen in training.{data.omitted_note}"
    )
    return ReportFigure(name="long_context", title="Results beyond the training length", caption=caption, figure=figure)


def curves_by_title(row: Row) -> dict[str, SeedCurves]:
    """Return the curves of all seeds by title."""
    curves: dict[str, SeedCurves] = {}
    for record in drawn_records(row):
        for curve in read_long_context_curves(record.folder):
            curves.setdefault(curve.title, []).append(curve)
    return curves


def draw_curves(panel: "Axes", curves: SeedCurves, row: Row, data: DrawnArms) -> None:
    """Draw the line and band of one arm."""
    line_style = data.line_style(row)
    xs = sorted({x for curve in curves for x, _ in curve.points})
    values = [[y for curve in curves for curve_x, y in curve.points if curve_x == x] for x in xs]
    medians = [statistics.median(seed_values) for seed_values in values]
    panel.plot(xs, medians, **line_style._asdict(), label=truncate_title(row.title))
    panel.fill_between(xs, list(map(min, values)), list(map(max, values)), color=line_style.color, alpha=0.15, lw=0)


def format_panel(panel: "Axes", curves: SeedCurves) -> None:
    """Set scales, ticks and labels: logarithmic x, and logarithmic y for costs that grow a lot."""
    xs = sorted({x for curve in curves for x, _ in curve.points})
    ys = [y for curve in curves for _, y in curve.points]
    name, axis = curves[0].name, curves[0].axis
    panel.set_xscale("symlog", base=2, linthresh=max(min((x for x in xs if x), default=1), 1))
    panel.set_xticks(xs, [str(x) for x in xs])
    panel.minorticks_off()
    if name in COST_FORMATS:
        if max(ys) > LOG_AXIS_RATIO * min(ys):
            panel.set_yscale("log")
            panel.yaxis.set_minor_formatter("")
        panel.yaxis.set_major_formatter(lambda y, _: COST_FORMATS[name](y))
    elif name in ("accuracy", "needle") or curves[0].is_ruler:
        panel.set_ylim(-3, 103)
    trained = {curve.trained for curve in curves if curve.trained is not None}
    if len(trained) == 1:
        panel.axvline(trained.pop(), color=MUTED, linestyle=":", linewidth=1.2)
    panel.set(
        xlabel=AXIS_LABELS.get(axis, axis), ylabel=AXIS_LABELS.get(name, f"{name} (%)" if curves[0].is_ruler else name)
    )
    panel.grid(True, axis="y")
