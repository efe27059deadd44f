"""Every figure that there is something to draw for; one that fails is a sentence instead, and the others stay."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.figures.by_length import by_length
from hqlt_lab.report.figures.cost_quality import cost_quality
from hqlt_lab.report.figures.forest import forest
from hqlt_lab.report.figures.heat_map import heat_map
from hqlt_lab.report.figures.in_the_world import in_the_world
from hqlt_lab.report.figures.learning_curves import learning_curves
from hqlt_lab.report.figures.long_context import long_context
from hqlt_lab.report.figures.material import Material
from hqlt_lab.report.figures.picture import Picture
from hqlt_lab.report.figures.style import styled
from hqlt_lab.report.figures.who_does_the_work import who_does_the_work
from hqlt_lab.report.rows import Row

FIGURES: tuple[Callable[[Material], Picture | None], ...] = (
    forest,
    in_the_world,
    learning_curves,
    by_length,
    long_context,
    heat_map,
    cost_quality,
    who_does_the_work,
)
NAMES = tuple(figure.__name__ for figure in FIGURES)


class Drawn(NamedTuple):
    """Figures, each with its SVG, and why some could not be drawn."""

    pictures: list[Picture]
    svgs: dict[str, str]
    troubles: list[str]


def draw(experiment: Experiment, rows: Sequence[Row]) -> Drawn:
    """In the order of a reader's questions."""
    material, drawn = Material(experiment, rows), Drawn([], {}, [])
    for figure in FIGURES:
        try:
            with styled():
                picture = figure(material)
            if picture is not None:
                drawn.svgs[picture.name] = picture.svg()
                drawn.pictures.append(picture)
        except Exception as error:  # whatever it is: a study is not lost because a figure is
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            drawn.troubles.append(f"The figure {figure.__name__} could not be drawn: {told}.")
    return drawn
