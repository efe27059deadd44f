"""How it was learned: the selected metric and the training loss against steps.

A line is the median over seeds, the band reaches from the lowest to the highest seed.  Seeds that logged at different
steps are joined by straight lines; one that ended early counts as far as it went.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.report.curves import sketch
from hqlt_lab.report.figures.material import Material, seeds_of, seeds_told
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import cut, legend, sheet
from hqlt_lab.report.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 200
LOSS = "train/loss"


class Band(NamedTuple):
    """Several seeds as one line; arrays over the same steps."""

    steps: Any
    low: Any
    middle: Any
    high: Any


def learning_curves(material: Material) -> Picture | None:
    """A panel for the selected metric, one for the loss."""
    metrics = list(dict.fromkeys([material.experiment.measure.select, LOSS]))
    found = {metric: bands(material.drawn, metric) for metric in metrics}
    metrics = [metric for metric in metrics if found[metric]]
    if not metrics:
        return None
    figure, panels = sheet(0.6 + 2.0 * len(metrics) + 0.2 * len(found[metrics[0]]) / 2, rows=len(metrics), sharex=True)
    for panel, metric in zip(panels, metrics, strict=True):
        draw(panel, metric, found[metric], material)
    panels[-1].set_xlabel(material.steps)
    legend(figure, max(zip(panels, metrics, strict=True), key=lambda pair: len(found[pair[1]]))[0])
    caption = (
        f"Each line is the median over seeds ({seeds_told(material.drawn)} per arm), at the chosen hyper-parameters; "
        f"the band reaches from the lowest to the highest seed.{material.left_out}"
    )
    return Picture(name="learning_curves", title="How it was learned", caption=caption, figure=figure)


def bands(rows: Sequence[Row], metric: str) -> dict[str, Band]:
    """By arm, where anything was logged."""
    found = {}
    for row in rows:
        curves = [sketch(record.folder, metric, MOST_POINTS) for record in seeds_of(row)]
        curves = [curve for curve in curves if curve]
        if curves:
            found[row.title] = band(curves)
    return found


def band(curves: Sequence[Mapping[int, float]]) -> Band:
    """Median, lowest and highest at steps that one of them has."""
    import numpy as np

    steps, values = aligned(curves)
    return Band(steps, np.nanmin(values, 0), np.nanmedian(values, 0), np.nanmax(values, 0))


def aligned(curves: Sequence[Mapping[int, float]]) -> tuple[Any, Any]:
    """Steps that one of them has, and the values of all there, [curves, steps]; where one has ended, no number."""
    import numpy as np

    steps = np.array(sorted({step for curve in curves for step in curve}))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int))]
    values = np.array(
        [
            np.interp(steps, sorted(curve), [curve[step] for step in sorted(curve)], left=np.nan, right=np.nan)
            for curve in curves
        ]
    )  # [seeds, steps]
    known = ~np.isnan(values).all(0)
    return steps[known], values[:, known]


def draw(panel: "Axes", metric: str, found: Mapping[str, Band], material: Material) -> None:
    """One metric, the baseline above the others."""
    for number, row in enumerate(material.drawn):
        if row.title in found:
            one, look = found[row.title], material.look(row)
            few = len(one.steps) <= 20
            line = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker if few else None}
            panel.plot(one.steps, one.middle, **line, label=cut(row.title), zorder=4 - number / 100)
            panel.fill_between(one.steps, one.low, one.high, color=look.color, alpha=0.15, linewidth=0)
    panel.set_title(metric)
    panel.grid(True)
