"""All that is wrong with a composition that cannot be made: no mistake hides another.

Changes that cannot be made are left out, as are sections that cannot be filled; what remains is looked at as if it
were all.  What would be wrong only because something was left out is not told.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.change import AXES, VARIED, change_each
from hqlt_lab.experiment.composition import Found, Sentences, wrong_model, wrong_task, wrong_together
from hqlt_lab.experiment.fill import fill_each
from hqlt_lab.experiment.references import resolve_each
from hqlt_lab.experiment.settings import MeasureConfig

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

SOME_VOCABULARY = 2  # for a model whose task is not known


def every_mistake(
    experiment: "Experiment",
    arm: "Arm",
    point: Mapping[str, Any],
    measure: MeasureConfig,
    checked: dict[str, Found],
) -> Sentences:
    """A sentence for each mistake of this arm at this tuned point."""
    told, unchanged = change_each(experiment.base, arm.changes, VARIED, arm.place)
    told, more = change_each(told, {**arm.levels, **point}, VARIED, AXES)
    sections, dead = resolve_each(told)
    made, wrong = fill_each(sections)
    beside = [] if unchanged or more else beside_the_wrong(made, measure, arm.allow, checked)
    return [*unchanged, *more, *dead, *wrong, *beside]


def beside_the_wrong(
    made: Mapping[str, Any], measure: MeasureConfig, allow: tuple[str, ...], checked: dict[str, Found]
) -> Sentences:
    """What the sections that could be filled have wrong as a whole."""
    task, model = made.get("task"), made.get("model")
    cell = Cell(**{"task": {}, "model": {}} | dict(made))
    if task and model:
        return wrong_together(cell, measure, allow, checked)[0]
    if task:
        return wrong_task(cell, measure)[1]
    return wrong_model(cell, SOME_VOCABULARY)[1] if model else []
