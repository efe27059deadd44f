"""Draw all figures of a report. A figure that fails is replaced by an error message and does not affect the others."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.figures.cost_quality import cost_quality
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.forest_plot import forest
from hqlt_lab.report.figures.heat_map import heat_map
from hqlt_lab.report.figures.learning_curves import learning_curves
from hqlt_lab.report.figures.length_generalization import length_generalization
from hqlt_lab.report.figures.long_context_curves import long_context
from hqlt_lab.report.figures.memory_contribution import memory_contribution
from hqlt_lab.report.figures.report_figure import ReportFigure
from hqlt_lab.report.figures.rl_curves import rl_curves
from hqlt_lab.report.figures.steps_to_solve import steps_to_solve
from hqlt_lab.report.figures.style import style_context
from hqlt_lab.report.figures.tuning_curves import tuning_curves

FIGURE_FUNCTIONS: tuple[Callable[[DrawnArms], ReportFigure | None], ...] = (
    forest,
    rl_curves,
    learning_curves,
    steps_to_solve,
    tuning_curves,
    length_generalization,
    long_context,
    heat_map,
    cost_quality,
    memory_contribution,
)
FIGURE_NAMES = tuple(figure.__name__ for figure in FIGURE_FUNCTIONS)


class FigureSet(NamedTuple):
    """Drawn figures, their SVGs by name, and error messages of figures that failed."""

    figures: list[ReportFigure]
    svgs: dict[str, str]
    errors: list[str]


def draw_figures(experiment: Experiment, rows: Sequence[Row]) -> FigureSet:
    """Draw all figures that have data, in the order of FIGURE_FUNCTIONS."""
    data, figure_set = DrawnArms(experiment, rows), FigureSet([], {}, [])
    for draw_figure in FIGURE_FUNCTIONS:
        try:
            with style_context():
                figure = draw_figure(data)
            if figure is not None:
                figure_set.svgs[figure.name] = figure.to_svg()
                figure_set.figures.append(figure)
        except Exception as error:  # a failing figure must not prevent the report
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            figure_set.errors.append(f"The figure {draw_figure.__name__} could not be drawn: {message}.")
    return figure_set
