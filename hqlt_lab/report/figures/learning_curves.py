"""Learning curves: the selection metric and the training loss by step.

A line is the median over seeds, the band spans the lowest to the highest seed. Curves logged at different steps are
interpolated linearly; a seed that ended early contributes up to its last step.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms, drawn_records, format_seed_counts
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import add_legend, create_figure, truncate_title
from hqlt_lab.report.read_curves import read_thinned_curve
from hqlt_lab.report.value_formatting import format_rounded, join_names_with_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 200
LOSS_METRIC = "train/loss"


class Band(NamedTuple):
    """Line and band over seeds; arrays of equal length."""

    steps: Any
    low: Any
    middle: Any
    high: Any


def learning_curves(data: DrawnArms) -> ReportFigure | None:
    """Draw a panel for the selection metric and one for the loss."""
    metrics = list(dict.fromkeys([data.experiment.measure.select, LOSS_METRIC]))
    bands = {metric: median_bands(data.drawn_rows, metric) for metric in metrics}
    metrics = [metric for metric in metrics if bands[metric]]
    if not metrics:
        return None
    figure, panels = create_figure(
        0.6 + 2.0 * len(metrics) + 0.2 * len(bands[metrics[0]]) / 2, rows=len(metrics), sharex=True
    )
    for panel, metric in zip(panels, metrics, strict=True):
        draw_bands(panel, metric, bands[metric], data)
    panels[-1].set_xlabel(data.step_axis_label)
    add_legend(figure, max(zip(panels, metrics, strict=True), key=lambda pair: len(bands[pair[1]]))[0])
    caption = (
        f"{' and '.join(metrics)} during training, at the selected hyperparameters. Lines are medians over seeds "
        f"({format_seed_counts(data.drawn_rows)} per arm), bands span the lowest to the highest seed."
        f"{describe_best_end(bands[metrics[0]], metrics[0], data)}{data.omitted_note}"
    )
    return ReportFigure(name="learning_curves", title="Learning curves", caption=caption, figure=figure)


def describe_best_end(bands: Mapping[str, Band], metric: str, data: DrawnArms) -> str:
    """Return a sentence on the arm with the best median at the last step; empty for a single arm."""
    if len(bands) < 2:
        return ""
    ends = {title: float(band.middle[-1]) for title, band in bands.items()}
    is_minimized = data.experiment.measure.metric_direction(metric) == "minimize"
    best = min(ends.values()) if is_minimized else max(ends.values())
    return (
        f" {'Lowest' if is_minimized else 'Highest'} median of {metric} at the end: {format_rounded(best, metric)} "
        f"({join_names_with_value(ends, best, metric)})."
    )


def median_bands(rows: Sequence[Row], metric: str) -> dict[str, Band]:
    """Return the band of each arm that logged the metric, by title."""
    bands: dict[str, Band] = {}
    for row in rows:
        curves = [read_thinned_curve(record.folder, metric, MAX_POINTS) for record in drawn_records(row)]
        curves = [curve for curve in curves if curve]
        if curves:
            bands[row.title] = median_band(curves)
    return bands


def median_band(curves: Sequence[Mapping[int, float]]) -> Band:
    """Return the median, lowest and highest value at each step."""
    import numpy as np

    steps, values = align_curves(curves)
    return Band(steps, np.nanmin(values, 0), np.nanmedian(values, 0), np.nanmax(values, 0))


def align_curves(curves: Sequence[Mapping[int, float]]) -> tuple[Any, Any]:
    """Interpolate curves at common steps.

    Returns at most MAX_POINTS of all logged steps, and values [curves, steps], nan where a curve has no value.
    """
    import numpy as np

    steps = np.array(sorted({step for curve in curves for step in curve}))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MAX_POINTS)).round().astype(int))]
    values = np.array(
        [
            np.interp(steps, sorted(curve), [curve[step] for step in sorted(curve)], left=np.nan, right=np.nan)
            for curve in curves
        ]
    )  # [seeds, steps]
    has_value = ~np.isnan(values).all(0)
    return steps[has_value], values[:, has_value]


def draw_bands(panel: "Axes", metric: str, bands: Mapping[str, Band], data: DrawnArms) -> None:
    """Draw one metric, with the baseline in front."""
    for number, row in enumerate(data.drawn_rows):
        if row.title in bands:
            band, style = bands[row.title], data.line_style(row)
            show_markers = len(band.steps) <= 20
            line = {
                "color": style.color,
                "linestyle": style.linestyle,
                "marker": style.marker if show_markers else None,
            }
            panel.plot(band.steps, band.middle, **line, label=truncate_title(row.title), zorder=4 - number / 100)
            panel.fill_between(band.steps, band.low, band.high, color=style.color, alpha=0.15, linewidth=0)
    panel.set_title(metric)
    panel.grid(True)
