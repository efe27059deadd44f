"""Figure of the fast weights' share in each head's output, and of the scores without either memory.

Shares are means over seeds of the last probe of a run (`rundir.diagnostics`). Bars are evaluations of trained cells
with one memory lesioned (`rundir.evaluations`).
"""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.drawn_arms import DrawnArms, drawn_records
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import (
    BLUE,
    FIGURE_WIDTH,
    FOREGROUND,
    MUTED,
    ORANGE,
    title_parts,
    truncate_label,
    truncate_title,
)
from hqlt_lab.rundir.diagnostics import read_probes
from hqlt_lab.rundir.evaluations import read_evaluations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PANEL_COLUMNS = 3
LESION_BARS = {
    "test": ("intact", FOREGROUND),
    "test without fw": ("without fw", BLUE),
    "test without kv": ("without kv", ORANGE),
}
SHARES_CAPTION = (
    "Color: share of the fast weights (fw) in the output of each head, averaged over seeds. 1: only the fast weights "
    "contribute; 0: only softmax attention."
)
LESIONS_CAPTION = "Bars: median test result of the intact model, and without one memory (lesion); dots: seeds"
HeadShares = list[list[float | None]]  # [layers][heads]


def memory_contribution(data: DrawnArms) -> ReportFigure | None:
    """Draw panels of shares above and bars of scores below."""
    shares = {row.title: mean_shares(row) for row in data.drawn_rows}
    shares = {title: table for title, table in shares.items() if any(map(has_number, table))}
    bars = {row.title: lesion_scores(row, data.metric) for row in data.drawn_rows}
    bars = {title: values for title, values in bars.items() if len(values) > 1}
    if not shares and not bars:
        return None
    from matplotlib.figure import Figure

    rows = -(-len(shares) // PANEL_COLUMNS)
    max_layers = max((len(table) for table in shares.values()), default=0)
    heights = [rows * (0.75 + 0.24 * max(max_layers, 3))] * bool(shares) + [0.9 + 0.42 * len(bars)] * bool(bars)
    figure = Figure(figsize=(FIGURE_WIDTH, sum(heights)), layout="constrained")
    subfigures = figure.subfigures(len(heights), height_ratios=heights, squeeze=False)
    for subfigure in subfigures.flat:
        subfigure.set_facecolor("none")
    if shares:
        draw_shares(subfigures.flat[0], shares)
    if bars:
        draw_lesion_bars(subfigures.flat[-1], bars, data.metric)
    caption = (
        " ".join([SHARES_CAPTION] * bool(shares) + [f"{LESIONS_CAPTION} ({data.metric})."] * bool(bars))
        + data.omitted_note
    )
    return ReportFigure(name="memory_contribution", title="Contribution of each memory", caption=caption, figure=figure)


def has_number(heads: Sequence[float | None]) -> bool:
    return any(value is not None for value in heads)


def mean_shares(row: Row) -> HeadShares:
    """Return the shares of each layer and head at the last probe, averaged over seeds."""
    probes = [probe for record in drawn_records(row) if (probe := read_probes(record.folder))]
    tables = [[layer.get("share", []) for layer in probe.layers] for probe in probes]
    layers = max(map(len, tables), default=0)
    return [mean_per_head([table[layer] for table in tables if layer < len(table)]) for layer in range(layers)]


def mean_per_head(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean of each head over rows, ignoring None; None if a head has no value."""
    means: list[float | None] = []
    for head in range(max(map(len, rows), default=0)):
        values = [value for row in rows if head < len(row) and (value := row[head]) is not None]
        means.append(statistics.fmean(values) if values else None)
    return means


def lesion_scores(row: Row, metric: str) -> dict[str, list[float]]:
    """Return the values of all seeds by evaluation: intact, and with each memory lesioned."""
    scores: dict[str, list[float]] = {}
    for record in drawn_records(row):
        evaluations = {"test": dict(record.metrics)} | read_evaluations(record.folder)
        for name in LESION_BARS:
            if metric in evaluations.get(name, {}):
                scores.setdefault(name, []).append(evaluations[name][metric])
    return scores


def draw_shares(figure: "SubFigure", shares_by_arm: dict[ArmTitle, HeadShares]) -> None:
    """Draw a small panel per arm, all with the same color scale."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    columns = min(PANEL_COLUMNS, len(shares_by_arm))
    panels = figure.subplots(-(-len(shares_by_arm) // columns), columns, squeeze=False)
    scale = ScalarMappable(Normalize(0, 1), "cividis")
    for panel, (title, table) in zip(panels.flat, shares_by_arm.items(), strict=False):
        draw_share_panel(panel, title, table, scale)
    for panel in panels.flat[len(shares_by_arm) :]:
        panel.set_visible(False)
    figure.colorbar(scale, ax=panels, label="share of fw", fraction=0.05)


def draw_share_panel(panel: "Axes", title: ArmTitle, table: HeadShares, scale: Any) -> None:
    """Draw the shares of one arm: layers from top to bottom, heads from left to right."""
    import numpy as np

    heads = max(map(len, table))
    values = np.array([[*row, *[None] * (heads - len(row))] for row in table], float)  # None becomes nan
    panel.patch.set(hatch="////", edgecolor=MUTED)
    panel.pcolormesh(np.ma.masked_invalid(values), cmap=scale.cmap, norm=scale.norm, edgecolors="white", linewidth=0.6)
    panel.set_title("\n".join(truncate_label(line, 22) for line in title_parts(title)), size=8)
    ticks = [np.arange(0, size, -(-size // 4)) for size in (len(table), heads)]
    panel.set_yticks(ticks[0] + 0.5, [str(number) for number in ticks[0]])
    panel.set_xticks(ticks[1] + 0.5, [str(number) for number in ticks[1]])
    panel.set_xlabel("head", size=9)
    panel.set_ylabel("layer", size=9)
    panel.tick_params(length=0)
    panel.invert_yaxis()


def draw_lesion_bars(figure: "SubFigure | Figure", bars: dict[ArmTitle, dict[str, list[float]]], metric: str) -> None:
    """Draw three bars per arm, the medians over seeds, and a dot for each seed."""
    panel = figure.subplots()
    for index, (name, (label, color)) in enumerate(LESION_BARS.items()):
        seeds_by_y = {
            number + 0.26 * (index - 1): values[name] for number, values in enumerate(bars.values()) if name in values
        }
        if seeds_by_y:
            medians = [statistics.median(seeds) for seeds in seeds_by_y.values()]
            panel.barh(list(seeds_by_y), medians, 0.24, color=color, alpha=0.75, label=label)
        for y, seeds in seeds_by_y.items():
            panel.plot(seeds, [y] * len(seeds), "o", color=MUTED, markersize=2.5)
    panel.set_yticks(range(len(bars)), [truncate_title(title, 40) for title in bars])
    panel.invert_yaxis()
    panel.set_xlabel(metric)
    panel.grid(True, axis="x")
    figure.legend(loc="outside lower center", ncols=3)
