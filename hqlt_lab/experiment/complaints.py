"""Everything that is wrong with an experiment, gathered before anything trains.

What is wrong in every arm is told once; what is wrong in some, with their names.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import ConfigError, HqltError, did_you_mean, listed
from hqlt_lab.experiment.composition import wrong_together
from hqlt_lab.experiment.evaluation import is_asked
from hqlt_lab.experiment.fill import fill_part
from hqlt_lab.experiment.plan import key_of, points
from hqlt_lab.experiment.references import refers
from hqlt_lab.model.config import PARTS
from hqlt_lab.registry import settings_from

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

Result = TypeVar("Result")


class Complaints:
    """Gathers sentences; `stop` raises them all."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.warnings: list[str] = []

    def add(self, sentence: str) -> None:
        if sentence not in self.found:
            self.found.append(sentence)

    def stop(self) -> None:
        if self.found:
            raise ConfigError("\n".join(self.found))

    def gather(self, make: Callable[..., Result], *given: Any) -> Result | None:
        """What `make` makes, or None and its complaints on the list."""
        try:
            return make(*given)
        except HqltError as error:
            for line in str(error).splitlines():
                self.add(line)
            return None

    def section(self, maker: type[Result], name: str, told: Any) -> Result:
        """A section of settings; its complaints gain its name."""
        if not isinstance(told, Mapping):
            raise ConfigError(f"{name}: a mapping of settings is needed, got {told!r}.")
        try:
            return settings_from(maker, told)
        except ConfigError as error:
            raise ConfigError("\n".join(f"{name}.{line}" for line in str(error).splitlines())) from error

    def rows(self, experiment: "Experiment") -> None:
        """Published rows are rows of arms that exist."""
        titles = [arm.title for arm in experiment.arms]
        for name in experiment.published:
            if name not in titles:
                self.add(
                    f"published.{name}: no arm is called {name!r}.{did_you_mean(name, titles)} Arms: {listed(titles)}."
                )
        for word, rows in (("published", experiment.published), ("quoted", experiment.quoted)):
            for name, metrics in rows.items():
                if not isinstance(metrics, Mapping) or not all(
                    isinstance(value, Mapping) for value in metrics.values()
                ):
                    self.add(
                        f"{word}.{name}: {{metric: {{best: 100.0, median: ..., mad: ...}}}} is needed, got {metrics!r}."
                    )

    def compositions(self, experiment: "Experiment") -> None:
        """Every arm at every tuned point is a model that can be built, and no two of them are the same."""
        by_sentence: dict[str, list[str]] = {}
        warned: dict[str, list[str]] = {}
        keys: dict[str, str] = {}
        checked: set[str] = set()
        trained = [metric for metric in experiment.measure.report if not is_asked(metric)]
        measure = replace(experiment.measure, report=trained)
        for arm in experiment.arms:
            for point in points(experiment.tune):
                title = ", ".join([arm.title, *(f"{path}={value}" for path, value in point.items())])
                try:
                    cell = experiment.cell(arm, point, experiment.seeds[0])
                    wrong, doubtful = wrong_together(cell, measure, arm.allow, checked)
                    key = key_of(cell)
                    if keys.setdefault(key, title) != title:
                        wrong = [
                            *wrong,
                            f"arms {keys[key]!r} and {title!r} are the same: nothing that matters differs.",
                        ]
                except HqltError as error:
                    wrong, doubtful = [with_hint(line, arm) for line in str(error).splitlines()], []
                for sentences, book in ((wrong, by_sentence), (doubtful, warned)):
                    for sentence in sentences:
                        book.setdefault(sentence, []).append(arm.title)
        for book, tell in ((by_sentence, self.add), (warned, self.warnings.append)):
            for sentence, titles in book.items():
                everywhere = set(titles) == {arm.title for arm in experiment.arms} or sentence.startswith("arms ")
                tell(sentence if everywhere else f"{told_of(titles)}: {sentence}")

    def unread(self, experiment: "Experiment") -> None:
        """A part of the base that every arm replaces is built by none of them, and its mistakes would never be told."""
        model = experiment.base["model"]
        for kind in PARTS if isinstance(model, Mapping) else ():
            path = f"model.{kind}"
            replaced = all(path in arm.changes or path in arm.levels for arm in experiment.arms)
            if replaced and isinstance(model.get(kind), str | Mapping) and not refers(model[kind]):
                self.gather(fill_part, kind, model[kind], path)

    def texts(self, experiment: "Experiment") -> None:
        """Only who has learned a text can be asked about one."""
        point = next(points(experiment.tune))
        for arm in experiment.arms if experiment.evaluate else ():
            task = experiment.cell(arm, point, experiment.seeds[0]).task["name"]
            if task != "language":
                self.add(f"evaluate: these tasks are about text, and arm {arm.title!r} learns {task!r}.")


def with_hint(sentence: str, arm: "Arm") -> str:
    """A renamed part keeps its options; one that the new part lacks is in the way."""
    for path, name in (*arm.changes.items(), *arm.levels.items()):
        part = path.removesuffix(".name")
        if part != path and sentence.startswith(f"{part}:") and "has no option" in sentence:
            return f"{sentence} To leave the old options behind, replace the part: {{{part}: {name}}}."
    return sentence


def told_of(titles: list[str]) -> str:
    """Which arms a complaint is about."""
    names = list(dict.fromkeys(titles))
    return f"arm {names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
