"""Who does the work: how much of each head's output the fast weights give, and what is left without either memory.

The share is the mean over seeds of the last look that a run took into its memories (`train.probe_file`); the bars are
evaluations of trained cells with one memory silenced (`train.evaluations`).
"""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hqlt_lab.report.figures.material import Material, seeds_of
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import BLUE, FAINT, INK, ORANGE, WIDTH, brief, cut
from hqlt_lab.report.rows import Row
from hqlt_lab.train.evaluations import read_evaluations
from hqlt_lab.train.probe_file import read_probes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLUMNS = 3
BARS = {"test": ("intact", INK), "test without fw": ("without fw", BLUE), "test without kv": ("without kv", ORANGE)}
SHARES = "Share of the fast weights in each head's output, the mean over seeds: 1 is all theirs, 0 all softmax's."
LESIONS = "Bars: what the trained arms score as they are, and with one memory silenced; dots are seeds"
Shares = list[list[float | None]]  # [layers][heads]


def who_does_the_work(material: Material) -> Picture | None:
    """Panels of shares above, bars below."""
    found = {row.title: shares(row) for row in material.drawn}
    found = {title: table for title, table in found.items() if any(map(any_number, table))}
    bars = {row.title: lesions(row, material.metric) for row in material.drawn}
    bars = {title: values for title, values in bars.items() if len(values) > 1}
    if not found and not bars:
        return None
    from matplotlib.figure import Figure

    rows = -(-len(found) // COLUMNS)
    most = max((len(table) for table in found.values()), default=0)
    heights = [rows * (0.75 + 0.24 * max(most, 3))] * bool(found) + [0.9 + 0.42 * len(bars)] * bool(bars)
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), height_ratios=heights, squeeze=False)
    for part in parts.flat:
        part.set_facecolor("none")
    if found:
        draw_shares(parts.flat[0], found)
    if bars:
        draw_bars(parts.flat[-1], bars, material.metric)
    caption = " ".join([SHARES] * bool(found) + [f"{LESIONS} ({material.metric})."] * bool(bars)) + material.left_out
    return Picture(name="who_does_the_work", title="Which memory does the work", caption=caption, figure=figure)


def any_number(heads: Sequence[float | None]) -> bool:
    return any(value is not None for value in heads)


def shares(row: Row) -> Shares:
    """The mean over seeds of the last look."""
    looks = [look for record in seeds_of(row) if (look := read_probes(record.folder))]
    tables = [[layer.get("share", []) for layer in look.layers] for look in looks]
    layers = max(map(len, tables), default=0)
    return [mean_of([table[layer] for table in tables if layer < len(table)]) for layer in range(layers)]


def mean_of(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Head by head, without those that were no number."""
    means: list[float | None] = []
    for head in range(max(map(len, rows), default=0)):
        values = [value for row in rows if head < len(row) and (value := row[head]) is not None]
        means.append(statistics.fmean(values) if values else None)
    return means


def lesions(row: Row, metric: str) -> dict[str, list[float]]:
    """The seeds' values of each evaluation that there is."""
    found: dict[str, list[float]] = {}
    for record in seeds_of(row):
        told = {"test": dict(record.metrics)} | read_evaluations(record.folder)
        for name in BARS:
            if metric in told.get(name, {}):
                found.setdefault(name, []).append(told[name][metric])
    return found


def draw_shares(figure: "SubFigure", found: dict[str, Shares]) -> None:
    """A small panel per arm, all in the same colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    columns = min(COLUMNS, len(found))
    panels = figure.subplots(-(-len(found) // columns), columns, squeeze=False)
    scale = ScalarMappable(Normalize(0, 1), "cividis")
    for panel, (title, table) in zip(panels.flat, found.items(), strict=False):
        draw_panel(panel, title, table, scale)
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    figure.colorbar(scale, ax=panels, label="share of fw", fraction=0.05)


def draw_panel(panel: "Axes", title: str, table: Shares, scale: Any) -> None:
    """Layers from top to bottom, heads from left to right."""
    import numpy as np

    heads = max(map(len, table))
    values = np.array([[*row, *[None] * (heads - len(row))] for row in table], float)  # None becomes nan
    panel.patch.set(hatch="////", edgecolor=FAINT)
    panel.pcolormesh(np.ma.masked_invalid(values), cmap=scale.cmap, norm=scale.norm, edgecolors="white", linewidth=0.6)
    panel.set_title("\n".join(cut(line, 22) for line in brief(title).split(" · ")), size=8)
    ticks = [every for size in (len(table), heads) for every in [np.arange(0, size, -(-size // 4))]]
    panel.set_yticks(ticks[0] + 0.5, [str(number) for number in ticks[0]])
    panel.set_xticks(ticks[1] + 0.5, [str(number) for number in ticks[1]])
    panel.set_xlabel("head", size=9)
    panel.set_ylabel("layer", size=9)
    panel.tick_params(length=0)
    panel.invert_yaxis()


def draw_bars(figure: "SubFigure | Figure", bars: dict[str, dict[str, list[float]]], metric: str) -> None:
    """Three bars per arm, the median over seeds, a dot for each seed."""
    panel = figure.subplots()
    for place, (name, (label, colour)) in enumerate(BARS.items()):
        lines = {line + 0.26 * (place - 1): values[name] for line, values in enumerate(bars.values()) if name in values}
        if lines:
            medians = [statistics.median(seeds) for seeds in lines.values()]
            panel.barh(list(lines), medians, 0.24, color=colour, alpha=0.75, label=label)
        for at, seeds in lines.items():
            panel.plot(seeds, [at] * len(seeds), "o", color=FAINT, markersize=2.5)
    panel.set_yticks(range(len(bars)), [cut(title, 40) for title in bars])
    panel.invert_yaxis()
    panel.set_xlabel(metric)
    panel.grid(True, axis="x")
    figure.legend(loc="outside lower center", ncols=3)
