"""A grid at a glance: two factors span it, a third one makes panels.

The arms are the first factor if there are several; each crossed path is another.  Brighter is better; hatched is not
known (yet).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.change import label, short, spelled_value
from hqlt_lab.experiment.experiment import Arm
from hqlt_lab.report.figures.material import Material
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import FAINT, cut, sheet
from hqlt_lab.report.words import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LEVELS, MOST_PANELS = 24, 6
ARM = "arm"


@dataclass(frozen=True)
class Grid:
    """Values by their levels, as words; and what a figure cannot show of them."""

    factors: dict[str, list[str]]  # path, or "arm" -> levels
    values: Mapping[tuple[str, ...], float]  # in the order of the factors
    names: Mapping[str, str] = field(default_factory=dict)  # path -> its short name


def heat_map(material: Material) -> Picture | None:
    """Rows are the first factor, columns the second."""
    grid = grid_of(material)
    if len(grid.factors) < 2 or not grid.values:
        return None
    (down, rows), (across, columns), *others = grid.factors.items()
    beside, panels_of = others[0] if others else ("", [""])
    fixed = {path: levels[0] for path, levels in others[1:]}
    rows, columns, beside_levels = rows[:MOST_LEVELS], columns[:MOST_LEVELS], panels_of[:MOST_PANELS]
    figure, panels = sheet(
        len(beside_levels) * (0.5 + 0.34 * len(rows)) + 0.7 + 0.06 * max(map(len, columns)), rows=len(beside_levels)
    )
    scale = colours(grid.values.values(), material.upwards)
    for panel, level in zip(panels, beside_levels, strict=True):
        chosen = [(row, column, *([level] if beside else []), *fixed.values()) for row in rows for column in columns]
        draw(panel, rows, columns, [grid.values.get(key) for key in chosen], scale, material.metric)
        panel.set_ylabel(grid.names[down])
        panel.set_title(f"{grid.names[beside]}={level}" if beside else material.metric)
    panels[-1].set_xlabel(grid.names[across])
    figure.colorbar(scale, ax=panels, label=f"{material.metric}" if beside else None)
    return Picture(name="heat_map", title="The grid at a glance", caption=told(material, grid, fixed), figure=figure)


def grid_of(material: Material) -> Grid:
    """From arms at every choice of crossed levels; single changes (`one_at_a_time`) make no grid."""
    arms = material.experiment.arms
    paths = list(arms[0].levels)
    names = {ARM: ARM} | {path: short(path, arms[0].levels) for path in paths}
    if any(list(arm.levels) != paths for arm in arms):
        return Grid({}, {})
    levels = {path: list(dict.fromkeys(word(arm, path) for arm in arms)) for path in [ARM, *paths]}
    factors = {path: several for path, several in levels.items() if len(several) > 1}
    values = {}
    for row in material.finished:
        value, arm = material.value(row), material.arms[row.title]
        if value is not None:
            values[tuple(word(arm, path) for path in factors)] = value
    return Grid(factors, values, names)


def word(arm: Arm, path: str) -> str:
    return arm.name if path == ARM else spelled_value(arm.levels[path])


def colours(values: Any, upwards: bool) -> Any:
    """From dark to bright as from bad to good."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = min(values), max(values)
    room = 0.5 * (high == low)
    return ScalarMappable(Normalize(low - room, high + room), "cividis" if upwards else "cividis_r")


def draw(
    panel: "Axes", rows: Sequence[str], columns: Sequence[str], values: Sequence[float | None], scale: Any, metric: str
) -> None:
    """Squares with their numbers; what is not known shows the hatched ground."""
    import numpy as np

    table = np.array([np.nan if value is None else value for value in values]).reshape(len(rows), len(columns))
    panel.patch.set(hatch="////", edgecolor=FAINT)
    panel.pcolormesh(np.ma.masked_invalid(table), cmap=scale.cmap, norm=scale.norm, edgecolors="white", linewidth=1)
    small = len(columns) > 8
    for (line, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            red, green, blue, _ = scale.to_rgba(value)
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            colour = "white" if dark else "black"
            told = shown(float(value), metric)
            panel.text(column + 0.5, line + 0.5, told, ha="center", va="center", color=colour, size=6 if small else 9)
    panel.set_xticks(np.arange(len(columns)) + 0.5, [cut(name, 24) for name in columns])
    panel.set_yticks(np.arange(len(rows)) + 0.5, [cut(name, 24) for name in rows])
    if sum(map(len, columns)) > 40:
        panel.tick_params(axis="x", rotation=30)
    panel.tick_params(length=0)
    panel.invert_yaxis()


def told(material: Material, grid: Grid, fixed: Mapping[str, str]) -> str:
    """How to read it, and what is not in it."""
    levels = list(grid.factors.values())
    cuts = [*(len(several) > MOST_LEVELS for several in levels[:2]), *(len(one) > MOST_PANELS for one in levels[2:3])]
    kept = " and ".join(label(path, level, grid.names) for path, level in fixed.items())
    return (
        f"{material.metric}, the {material.experiment.measure.statistic} over seeds of each arm; brighter is better, "
        f"hatched has no result."
        + (f" Shown for {kept} alone." if fixed else "")
        + (" Some levels are left out; the table has them all." if any(cuts) else "")
    )
