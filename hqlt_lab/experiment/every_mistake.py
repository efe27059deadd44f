"""All that is wrong with a composition that cannot be made: no mistake hides another.

Changes that cannot be made are left out, as are sections that cannot be filled; what remains is looked at as if it
were all.  What would be wrong only because something was left out is not told.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.change import AXES, VARIED, change_each
from hqlt_lab.experiment.composition import Found, Sentences, wrong_model, wrong_options, wrong_task, wrong_together
from hqlt_lab.experiment.fill import fill_each
from hqlt_lab.experiment.metrics import Metrics
from hqlt_lab.experiment.references import resolve_each
from hqlt_lab.model.config import PARTS, ModelConfig

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

LARGEST = 2**16  # of a size that is tried: there is no such part, and torch could not count larger ones
SOME_VOCABULARY = 2  # for a model whose task is not known


def every_mistake(
    experiment: "Experiment",
    arm: "Arm",
    point: Mapping[str, Any],
    metrics: Metrics,
    checked: dict[str, Found],
) -> Sentences:
    """A sentence for each mistake of this arm at this tuned point."""
    told, unchanged = change_each(experiment.base, arm.changes, VARIED, arm.place)
    told, more = change_each(told, {**arm.levels, **point}, VARIED, AXES)
    sections, dead = resolve_each(told)
    made, wrong = fill_each(sections)
    beside = [] if unchanged or more else beside_the_wrong(made, metrics, arm.allow, checked)
    options = [] if "model" in made else beside_wrong_settings(sections.get("model"))
    return [*unchanged, *more, *dead, *wrong, *options, *beside]


def beside_the_wrong(
    made: Mapping[str, Any], metrics: Metrics, allow: tuple[str, ...], checked: dict[str, Found]
) -> Sentences:
    """What the sections that could be filled have wrong as a whole."""
    task, model = made.get("task"), made.get("model")
    cell = Cell(**{"task": {}, "model": {}} | dict(made))
    if task and model:
        return wrong_together(cell, metrics, allow, checked)[0]
    if task:
        return wrong_task(cell, metrics)[1]
    return wrong_model(cell, SOME_VOCABULARY)[1] if model else []


def beside_wrong_settings(model: Any) -> Sentences:
    """What the parts of a model section say that cannot be filled; a size that is not told right is taken for usual."""
    if not isinstance(model, Mapping):
        return []
    sizes = {word: model[word] for word in ("width", "heads") if type(model.get(word)) is int}
    right = {word: size for word, size in sizes.items() if 0 < size <= LARGEST}
    return wrong_options(vars(ModelConfig()) | {kind: model.get(kind) for kind in PARTS} | right)
