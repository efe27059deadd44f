"""Beyond what was trained: a panel for each curve that `hqlt evaluate --long` has measured of the trained cells.

A line is the median over seeds, the band reaches from the lowest to the highest one; left of the dotted line is what
training went through.
"""

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from hqlt_lab.report.figures.material import Material, seeds_of
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import FAINT, cut, legend, sheet
from hqlt_lab.report.rows import Row
from hqlt_lab.train.long_context_file import Curve, curves_in
from hqlt_lab.words import in_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = {
    "loss": "loss (nats per token)",
    "accuracy": "accuracy (%)",
    "needle": "needles found (%)",
    "milliseconds_per_token": "ms per token",
    "state_bytes": "state",
    "place": "place in the text (tokens)",
    "distance": "distance (tokens)",
    "gap": "blanks between pairs and questions",
    "context": "context (tokens)",
}
COSTS: dict[str, Callable[[float], str]] = {"state_bytes": in_bytes, "milliseconds_per_token": "{:g}".format}
WIDE = 20  # a cost that grows by more is drawn on a logarithmic axis
Seeds = list[Curve]  # one curve of each seed


def long_context(material: Material) -> Picture | None:
    """One line per arm in each panel."""
    found = {row.title: curves_of(row) for row in material.drawn}
    titles = list(dict.fromkeys(title for curves in found.values() for title in curves))
    if not titles:
        return None
    figure, panels = sheet(2.1 * len(titles) + 0.1 * len(found), rows=len(titles))
    for panel, title in zip(panels, titles, strict=True):
        for row in material.drawn:
            if seeds := found[row.title].get(title):
                draw(panel, seeds, row, material)
        finish(panel, [curve for curves in found.values() for curve in curves.get(title, [])])
    legend(figure, panels[0])
    caption = (
        "Trained arms beyond what they were trained on: the median over the seeds that were evaluated, the band from "
        f"the lowest to the highest. Left of a dotted line is what training went through.{material.left_out}"
    )
    return Picture(name="long_context", title="Beyond what was trained", caption=caption, figure=figure)


def curves_of(row: Row) -> dict[str, Seeds]:
    """By title, the seeds that have it."""
    found: dict[str, Seeds] = {}
    for record in seeds_of(row):
        for curve in curves_in(record.folder):
            found.setdefault(curve.title, []).append(curve)
    return found


def draw(panel: "Axes", seeds: Seeds, row: Row, material: Material) -> None:
    """The arm's line and band."""
    look = material.look(row)
    places = sorted({x for curve in seeds for x, _ in curve.points})
    values = [[y for curve in seeds for at, y in curve.points if at == x] for x in places]
    panel.plot(places, [statistics.median(some) for some in values], **look._asdict(), label=cut(row.title))
    panel.fill_between(places, list(map(min, values)), list(map(max, values)), color=look.color, alpha=0.15, lw=0)


def finish(panel: "Axes", curves: Seeds) -> None:
    """Doublings are steps; a quantity that grows a lot, too."""
    places = sorted({x for curve in curves for x, _ in curve.points})
    heights = [y for curve in curves for _, y in curve.points]
    name, along = curves[0].name, curves[0].along
    panel.set_xscale("symlog", base=2, linthresh=max(min((x for x in places if x), default=1), 1))
    panel.set_xticks(places, [str(place) for place in places])
    panel.minorticks_off()
    if name in COSTS:
        if max(heights) > WIDE * min(heights):
            panel.set_yscale("log")
            panel.yaxis.set_minor_formatter("")
        panel.yaxis.set_major_formatter(lambda height, _: COSTS[name](height))
    elif name in ("accuracy", "needle"):
        panel.set_ylim(-3, 103)
    trained = {curve.trained for curve in curves if curve.trained is not None}
    if len(trained) == 1:
        panel.axvline(trained.pop(), color=FAINT, linestyle=":", linewidth=1.2)
    panel.set(xlabel=AXES.get(along, along), ylabel=AXES.get(name, name))
    panel.grid(True, axis="y")
