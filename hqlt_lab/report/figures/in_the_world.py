"""What agents reached while they learned: every reported metric of a world on its fixed validation episodes.

A line is the mean over seeds, the band its 95 % interval (Student's t over the seeds), as the paper draws it.
"""

from collections.abc import Mapping, Sequence

from hqlt_lab.report.curves import sketch
from hqlt_lab.report.figures.learning_curves import MOST_POINTS, Band, aligned, draw
from hqlt_lab.report.figures.material import Material, seeds_of, seeds_told
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import legend, sheet
from hqlt_lab.report.intervals import ALPHA
from hqlt_lab.report.rows import Row, reported


def in_the_world(material: Material) -> Picture | None:
    """A panel per reported metric; None where nobody acted."""
    if not material.in_a_world:
        return None
    asked = dict.fromkeys(f"valid/{name.partition('/')[2]}" for name in reported(material.experiment.measure))
    found = {metric: means(material.drawn, metric) for metric in asked}
    metrics = [metric for metric in asked if found[metric]]
    if not metrics:
        return None
    figure, panels = sheet(0.6 + 2.0 * len(metrics) + 0.2 * len(found[metrics[0]]) / 2, rows=len(metrics), sharex=True)
    for panel, metric in zip(panels, metrics, strict=True):
        draw(panel, metric, found[metric], material)
    panels[-1].set_xlabel(material.steps)
    legend(figure, panels[0])
    caption = (
        f"Means over seeds ({seeds_told(material.drawn)} per arm) of what agents do on the fixed validation episodes, "
        f"with the most probable actions; bands are 95 % intervals.{material.left_out}"
    )
    return Picture(name="in_the_world", title="What agents reached", caption=caption, figure=figure)


def means(rows: Sequence[Row], metric: str) -> dict[str, Band]:
    """By arm, where anything was logged."""
    curves = {row.title: [sketch(record.folder, metric, MOST_POINTS) for record in seeds_of(row)] for row in rows}
    told = {title: [curve for curve in several if curve] for title, several in curves.items()}
    return {title: mean(several) for title, several in told.items() if several}


def mean(curves: Sequence[Mapping[int, float]]) -> Band:
    """With its interval; one seed has none."""
    import numpy as np
    from scipy.special import stdtrit

    steps, values = aligned(curves)
    there = (~np.isnan(values)).sum(0)
    middle, freedom = np.nanmean(values, 0), np.maximum(there - 1, 1)
    spread = np.sqrt(np.nansum((values - middle) ** 2, 0) / freedom)
    reach = np.where(there > 1, stdtrit(freedom, 1 - ALPHA / 2) * spread / np.sqrt(there), 0.0)
    return Band(steps, middle - reach, middle, middle + reach)
