"""Learning curves of RL agents: every reported metric of an environment on its fixed validation episodes.

A line is the mean over seeds, the band its 95 % interval (Student's t over seeds), as in the paper.
"""

from collections.abc import Mapping, Sequence

from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.figures.drawn_arms import DrawnArms, drawn_records, format_seed_counts
from hqlt_lab.report.figures.learning_curves import MAX_POINTS, Band, align_curves, draw_bands
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.style import add_legend, create_figure
from hqlt_lab.report.read_curves import read_thinned_curve
from hqlt_lab.stats.intervals import ALPHA


def rl_curves(data: DrawnArms) -> ReportFigure | None:
    """Draw a panel per reported metric; None without agents."""
    if not data.has_agent:
        return None
    valid_metrics = dict.fromkeys(
        f"valid/{name.partition('/')[2]}" for name in reported_metrics(data.experiment.measure)
    )
    bands = {metric: mean_bands(data.drawn_rows, metric) for metric in valid_metrics}
    metrics = [metric for metric in valid_metrics if bands[metric]]
    if not metrics:
        return None
    figure, panels = create_figure(
        0.6 + 2.0 * len(metrics) + 0.2 * len(bands[metrics[0]]) / 2, rows=len(metrics), sharex=True
    )
    for panel, metric in zip(panels, metrics, strict=True):
        draw_bands(panel, metric, bands[metric], data)
    panels[-1].set_xlabel(data.step_axis_label)
    add_legend(figure, panels[0])
    caption = (
        "Results on the fixed validation episodes, with the most probable actions, against environment steps. Lines "
        f"are means over seeds ({format_seed_counts(data.drawn_rows)} per arm), bands are 95 % confidence intervals."
        f"{data.omitted_note}"
    )
    return ReportFigure(
        name="rl_curves", title="Validation results of agents during training", caption=caption, figure=figure
    )


def mean_bands(rows: Sequence[Row], metric: str) -> dict[str, Band]:
    """Return the band of each arm that logged the metric, by title."""
    curves = {
        row.title: [read_thinned_curve(record.folder, metric, MAX_POINTS) for record in drawn_records(row)]
        for row in rows
    }
    logged = {title: [curve for curve in seed_curves if curve] for title, seed_curves in curves.items()}
    return {title: mean_band(seed_curves) for title, seed_curves in logged.items() if seed_curves}


def mean_band(curves: Sequence[Mapping[int, float]]) -> Band:
    """Return the mean over seeds with its 95 % interval, which has width 0 for a single seed."""
    import numpy as np
    from scipy.special import stdtrit

    steps, values = align_curves(curves)
    counts = (~np.isnan(values)).sum(0)
    mean, degrees_of_freedom = np.nanmean(values, 0), np.maximum(counts - 1, 1)
    std = np.sqrt(np.nansum((values - mean) ** 2, 0) / degrees_of_freedom)
    half_width = np.where(counts > 1, stdtrit(degrees_of_freedom, 1 - ALPHA / 2) * std / np.sqrt(counts), 0.0)
    return Band(steps, mean - half_width, mean, mean + half_width)
