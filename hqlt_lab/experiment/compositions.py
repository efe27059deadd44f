"""All compositions of an experiment, one after the other: each can be made, and none is there twice."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import Found, Sentences, wrong_together
from hqlt_lab.experiment.every_mistake import every_mistake
from hqlt_lab.experiment.metrics import Metrics
from hqlt_lab.experiment.plan import key_of

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

LOOKED_INTO = 50  # compositions with a mistake, for what it hides: models take time to build


class Compositions:
    """What was looked at, so that nothing is looked at twice."""

    def __init__(self, experiment: "Experiment", metrics: Metrics) -> None:
        self.experiment, self.metrics = experiment, metrics
        self.checked: dict[str, Found] = {}
        self.keys: dict[str, str] = {}  # key -> the title of who has it
        self.failed = 0

    def look_at(self, arm: "Arm", point: Mapping[str, Any]) -> Found:
        """Complaints and warnings about an arm at a tuned point."""
        try:
            cell = self.experiment.cell(arm, point, self.experiment.seeds[0])
        except HqltError as error:
            told = dict.fromkeys([*self.hidden(arm, point), *str(error).splitlines()])
            return [with_hint(line, arm) for line in told], []
        wrong, doubtful = wrong_together(cell, self.metrics, arm.allow, self.checked)
        title = ", ".join([arm.title, *(f"{path}={value}" for path, value in point.items())])
        return [*wrong, *self.twice(cell, title)], doubtful

    def hidden(self, arm: "Arm", point: Mapping[str, Any]) -> Sentences:
        """What the first mistake of a composition hides."""
        self.failed += 1
        if self.failed > LOOKED_INTO:
            return []
        return every_mistake(self.experiment, arm, point, self.metrics, self.checked)

    def twice(self, cell: Cell, title: str) -> Sentences:
        """A sentence, if another composition would give the same result."""
        other = self.keys.setdefault(key_of(cell), title)
        return [] if other == title else [f"arms {other!r} and {title!r} are the same: nothing that matters differs."]


def with_hint(sentence: str, arm: "Arm") -> str:
    """A renamed part keeps its options; one that the new part lacks is in the way."""
    for path, name in (*arm.changes.items(), *arm.levels.items()):
        part = path.removesuffix(".name")
        if part != path and sentence.startswith(f"{part}:") and "has no option" in sentence:
            return f"{sentence} To leave the old options behind, replace the part: {{{part}: {name}}}."
    return sentence
