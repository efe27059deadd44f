"""Tuning curves: the score of each arm by the value of a tuned list of numbers, one panel per list.

A line is the score by which the value is selected, the band spans the lowest to the highest seed. A cross at the bottom
marks a value with which seeds were lost. Lists of positive numbers have a logarithmic axis.
"""

import math
from typing import TYPE_CHECKING

from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, add_legend, create_figure, truncate_title
from hqlt_lab.report.stats.tuning_windows import TuningWindow
from hqlt_lab.report.value_formatting import format_range, format_rounded
from hqlt_lab.report.wording.tuning_notes import describe_criterion, describe_windows, is_solved_criterion

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEVEL_TICKS = 6  # more labels of an axis are rotated, so that they do not overlap


def tuning_curves(data: DrawnArms) -> ReportFigure | None:
    """Draw one line per arm and a panel per tuned list; None without tuned lists of numbers."""
    windows = [window for row in data.drawn_rows for window in row.tuning_windows]
    paths = list(dict.fromkeys(window.path for window in windows))
    if not paths:
        return None
    figure, panels = create_figure(0.6 + 2.3 * len(paths) + 0.1 * len(data.drawn_rows), rows=len(paths))
    for panel, path in zip(panels, paths, strict=True):
        draw_panel(panel, path, data)
    add_legend(figure, panels[0])
    return ReportFigure(
        name="tuning_curves", title="Scores of tuned values", caption=compose_caption(windows, data), figure=figure
    )


def draw_panel(panel: "Axes", path: str, data: DrawnArms) -> None:
    """Draw the curves of one tuned list, with the baseline in front."""
    measure, axis = data.experiment.measure, set[float]()
    for number, row in enumerate(data.drawn_rows):
        for window in row.tuning_windows:
            if window.path == path:
                draw_curve(panel, row, window, data, zorder=4 - number / 100)
                axis |= {value.value for value in window.values}
    if measure.solved is not None and measure.select == measure.validation_metric:
        panel.axhline(measure.solved, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    if min(axis) > 0:
        panel.set_xscale("log")
    ticks = sorted(axis)
    panel.set_xticks(
        ticks, [format_rounded(tick) for tick in ticks], rotation=45 if len(ticks) > MAX_LEVEL_TICKS else 0
    )
    panel.minorticks_off()
    panel.set(xlabel=path, ylabel=measure.select)
    panel.grid(True, axis="y")


def draw_curve(panel: "Axes", row: Row, window: TuningWindow, data: DrawnArms, zorder: float) -> None:
    """Draw the scores of one arm with the band of its seeds, and crosses where seeds were lost."""
    style = data.line_style(row)
    x = [value.value for value in window.values]
    scores = [math.nan if value.score is None else value.score for value in window.values]
    panel.plot(
        x,
        scores,
        color=style.color,
        linestyle=style.linestyle,
        marker=style.marker,
        label=truncate_title(row.title),
        zorder=zorder,
    )
    results = [list(value.values_by_seed.values()) or [math.nan] for value in window.values]
    panel.fill_between(
        x, [min(each) for each in results], [max(each) for each in results], color=style.color, alpha=0.15, linewidth=0
    )
    lost = [value.value for value in window.values if value.lost_counts]
    if lost:
        panel.plot(
            lost,
            [0.02] * len(lost),
            color=style.color,
            linestyle="none",
            marker="x",
            transform=panel.get_xaxis_transform(),
            zorder=zorder,
        )


def compose_caption(windows: list[TuningWindow], data: DrawnArms) -> str:
    """Return what lines, bands and crosses mean, and with which values the arms work."""
    measure = data.experiment.measure
    counts = [len(value.values_by_seed) for window in windows for value in window.values]
    seeds = f"{format_range(min(counts), max(counts))} {'seed' if max(counts) == 1 else 'seeds'} per value"
    lost = any(value.lost_counts for window in windows for value in window.values)
    crosses = " Crosses: seeds diverged, failed or were pruned, and count as worse than any other." if lost else ""
    has_line = is_solved_criterion(windows, measure) and measure.select == measure.validation_metric
    threshold = " The dashed line is measure.solved." if has_line else ""
    paths = dict.fromkeys(window.path for window in windows)
    seen = " ".join(filter(None, (describe_windows(data.drawn_rows, path) for path in paths)))
    return (
        f"The {measure.statistic} of {measure.select} by tuned value ({seeds} with a result); bands span the lowest to "
        f"the highest seed.{crosses}{threshold} {describe_criterion(windows, measure)} {seen}{data.omitted_note}"
    ).strip()
