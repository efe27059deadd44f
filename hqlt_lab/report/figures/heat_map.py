"""Heat map of a grid: two factors span it, a third one makes panels.

The arms are the first factor if there are several; each crossed path is another. Brighter is better; hatched fields
have no result (yet).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.apply_overrides import format_change, format_value, short_path
from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import MUTED, create_figure, truncate_label
from hqlt_lab.report.value_formatting import format_rounded, join_names_with_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEVELS, MAX_PANELS = 24, 6
ARM_FACTOR = "arm"


@dataclass(frozen=True)
class ValueGrid:
    """Values of the metric by level labels."""

    factors: dict[str, list[str]]  # path or "arm" -> level labels
    values: Mapping[tuple[str, ...], float]  # in the order of the factors
    names: Mapping[str, str] = field(default_factory=dict)  # path -> short name


def heat_map(data: DrawnArms) -> ReportFigure | None:
    """Draw the first factor as rows, the second as columns and the third as panels."""
    grid = build_grid(data)
    if len(grid.factors) < 2 or not grid.values:
        return None
    (row_factor, rows), (column_factor, columns), *others = grid.factors.items()
    panel_factor, panel_levels = others[0] if others else ("", [""])
    fixed = {path: levels[0] for path, levels in others[1:]}
    rows, columns, panel_levels = rows[:MAX_LEVELS], columns[:MAX_LEVELS], panel_levels[:MAX_PANELS]
    figure, panels = create_figure(
        len(panel_levels) * (0.5 + 0.34 * len(rows)) + 0.7 + 0.06 * max(map(len, columns)), rows=len(panel_levels)
    )
    scale = color_scale(grid.values.values(), data.higher_is_better)
    for panel, level in zip(panels, panel_levels, strict=True):
        keys = [
            (row, column, *([level] if panel_factor else []), *fixed.values()) for row in rows for column in columns
        ]
        draw_panel(panel, rows, columns, [grid.values.get(key) for key in keys], scale, data.metric)
        panel.set_ylabel(grid.names[row_factor])
        panel.set_title(f"{grid.names[panel_factor]}={level}" if panel_factor else data.metric)
    panels[-1].set_xlabel(grid.names[column_factor])
    figure.colorbar(scale, ax=panels, label=f"{data.metric}" if panel_factor else None)
    return ReportFigure(
        name="heat_map", title="Results of the grid", caption=compose_caption(data, grid, fixed), figure=figure
    )


def build_grid(data: DrawnArms) -> ValueGrid:
    """Build the grid from arms crossed with levels; empty for single changes (`one_at_a_time`)."""
    arms = data.experiment.arms
    paths = list(arms[0].levels)
    names = {ARM_FACTOR: ARM_FACTOR} | {path: short_path(path, arms[0].levels) for path in paths}
    if any(list(arm.levels) != paths for arm in arms):
        return ValueGrid({}, {})
    levels = {path: list(dict.fromkeys(level_label(arm, path) for arm in arms)) for path in [ARM_FACTOR, *paths]}
    factors = {path: labels for path, labels in levels.items() if len(labels) > 1}
    values = {}
    for row in data.finished_rows:
        value, arm = data.row_value(row), data.arms_by_title[row.title]
        if value is not None:
            values[tuple(level_label(arm, path) for path in factors)] = value
    return ValueGrid(factors, values, names)


def level_label(arm: Arm, path: str) -> str:
    return arm.name if path == ARM_FACTOR else format_value(arm.levels[path])


def color_scale(values: Any, higher_is_better: bool) -> Any:
    """Return a color map that is brighter for better values."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = min(values), max(values)
    padding = 0.5 * (high == low)
    return ScalarMappable(Normalize(low - padding, high + padding), "cividis" if higher_is_better else "cividis_r")


def draw_panel(
    panel: "Axes", rows: Sequence[str], columns: Sequence[str], values: Sequence[float | None], scale: Any, metric: str
) -> None:
    """Draw fields with their values; missing values show the hatched background."""
    import numpy as np

    table = np.array([np.nan if value is None else value for value in values]).reshape(len(rows), len(columns))
    panel.patch.set(hatch="////", edgecolor=MUTED)
    panel.pcolormesh(np.ma.masked_invalid(table), cmap=scale.cmap, norm=scale.norm, edgecolors="white", linewidth=1)
    font_size = 6 if len(columns) > 8 else 9
    for (row, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            red, green, blue, _ = scale.to_rgba(value)
            is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            color = "white" if is_dark else "black"
            text = format_rounded(float(value), metric)
            panel.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=color, size=font_size)
    panel.set_xticks(np.arange(len(columns)) + 0.5, [truncate_label(name, 24) for name in columns])
    panel.set_yticks(np.arange(len(rows)) + 0.5, [truncate_label(name, 24) for name in rows])
    if sum(map(len, columns)) > 40:
        panel.tick_params(axis="x", rotation=30)
    panel.tick_params(length=0)
    panel.invert_yaxis()


def describe_extremes(data: DrawnArms, grid: ValueGrid) -> str:
    """Return e.g. "Highest: delta, sum (97.0); lowest: linear, vector (1.2). "."""
    values = {", ".join(key): value for key, value in grid.values.items()}
    low, high = (
        f"{join_names_with_value(values, value, data.metric)} ({format_rounded(value, data.metric)})"
        for value in (min(values.values()), max(values.values()))
    )
    return f"Highest: {high}; lowest: {low}. "


def compose_caption(data: DrawnArms, grid: ValueGrid, fixed_levels: Mapping[str, str]) -> str:
    """Return the caption: what colors mean, and which levels are not shown."""
    levels = list(grid.factors.values())
    truncated = [
        *(len(labels) > MAX_LEVELS for labels in levels[:2]),
        *(len(labels) > MAX_PANELS for labels in levels[2:3]),
    ]
    fixed = " and ".join(format_change(path, level, grid.names) for path, level in fixed_levels.items())
    return (
        f"{data.metric} of every combination of levels ({data.experiment.measure.statistic} over seeds). "
        f"{describe_extremes(data, grid)}Brighter is better; hatched fields have no result."
        + (f" Only {fixed} is shown." if fixed_levels else "")
        + (" Some levels are omitted; the table has all." if any(truncated) else "")
    )
