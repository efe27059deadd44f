"""Everything that is wrong with an experiment, gathered before anything trains.

What is wrong in every arm is told once; what is wrong in some, with their names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import ConfigError, HqltError, did_you_mean, listed
from hqlt_lab.experiment.compositions import Compositions
from hqlt_lab.experiment.fill import fill_part
from hqlt_lab.experiment.metrics import Metrics
from hqlt_lab.experiment.places import Place, Places
from hqlt_lab.experiment.plan import points
from hqlt_lab.experiment.references import refers
from hqlt_lab.experiment.subject import subjects
from hqlt_lab.experiment.tune import grid, mapping, tuning
from hqlt_lab.model.config import PARTS
from hqlt_lab.registry import settings_from

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

Result = TypeVar("Result")
PRINTED = ("best", "median", "mean", "mad", "std", "seeds")  # of a metric, in a row of a paper


class Complaints:
    """Gathers sentences about a file; `stop` raises them all, each with its line."""

    def __init__(self, file: Path, places: Places) -> None:
        self.file, self.places = str(file), places
        self.found: dict[str, Place | None] = {}
        self.warnings: list[str] = []

    def add(self, sentence: str) -> None:
        self.found.setdefault(sentence, self.places.first(subjects(sentence)))

    def add_of(self, arms: "Sequence[Arm]", sentence: str, everywhere: bool) -> None:
        """A sentence about these arms."""
        told = sentence if everywhere or sentence.startswith("arms") else f"{told_of(arms)}: {sentence}"
        self.found.setdefault(told, self.places.first(subjects(sentence, arms[0])))

    def warn_of(self, arms: "Sequence[Arm]", sentence: str, everywhere: bool) -> None:
        """The same about what may be meant."""
        told = sentence if everywhere else f"{told_of(arms)}: {sentence}"
        place = self.places.first(subjects(sentence, arms[0]))
        self.warnings.append(in_one_message(self.file, {told: place}))

    def stop(self) -> None:
        if self.found:
            raise ConfigError(in_one_message(self.file, self.found))

    def gather(self, make: Callable[..., Result], *given: Any) -> Result | None:
        """What `make` makes, or None and its complaints on the list."""
        try:
            return make(*given)
        except HqltError as error:
            for line in str(error).splitlines():
                self.add(line)
            return None

    def passes(self, check: Callable[..., Any], *given: Any) -> bool:
        """Whether a check has nothing to complain of."""
        before = len(self.found)
        self.gather(check, *given)
        return len(self.found) == before

    def about(self, *sections: str) -> bool:
        """Whether any complaint is about one of these sections."""
        return any(sentence.startswith(sections) for sentence in self.found)

    def readable(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Sections that are mappings: without what cannot be read, of which it is complained."""
        kinds = {"arms": "named changes", "published": "arms", "quoted": "rows"}
        right: dict[str, Any] = {}
        for word in (word for word in kinds if word in told):
            right[word] = told[word] if isinstance(told[word], Mapping) else {}
            if not isinstance(told[word], Mapping):
                self.add(f"{word}: a mapping of {kinds[word]} is needed, got {told[word]!r}.")
        for word in (word for word in ("cross", "one_at_a_time", "tune") if word in told):
            axes = self.gather(mapping, told[word], word) or {}
            make = tuning if word == "tune" else partial(grid, at=word)
            right[word] = {path: values for path, values in axes.items() if self.gather(make, {path: values})}
        return right

    def rows(self, experiment: "Experiment") -> None:
        """Published rows are rows of arms that exist."""
        titles = [arm.title for arm in experiment.arms]
        unknown = [name for name in experiment.published if name not in titles]
        for name in () if self.about("arms", "cross", "one_at_a_time") else unknown:
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
                    continue
                for metric, told in metrics.items():
                    for sentence in wrong_numbers(told):
                        self.add(f"{word}.{name}.{metric}.{sentence}")

    def compositions(self, experiment: "Experiment", metrics: Metrics) -> None:
        """Every arm at every tuned point is a model that can be built, and no two of them are the same."""
        compositions = Compositions(experiment, metrics)
        books: tuple[dict[str, dict[str, Arm]], ...] = ({}, {})  # complaints and warnings -> the arms they are about
        for arm in experiment.arms:
            for point in points(experiment.tune):
                for sentences, book in zip(compositions.look_at(arm, point), books, strict=True):
                    for sentence in sentences:
                        book.setdefault(sentence, {})[arm.title] = arm
        wrong, doubtful = books
        for sentence, arms in wrong.items():
            self.add_of([*arms.values()], sentence, everywhere=len(arms) == len(experiment.arms))
        for sentence, arms in doubtful.items():
            self.warn_of([*arms.values()], sentence, everywhere=len(arms) == len(experiment.arms))

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


def wrong_numbers(told: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the numbers of one metric in a row of a paper."""
    for key, value in told.items():
        if key not in PRINTED:
            yield f"{key}: papers print {listed(PRINTED)}.{did_you_mean(str(key), PRINTED)}"
        elif type(value) not in (int, float):
            yield f"{key}: a number is needed, got {value!r}. Leave out what was not printed."


def told_of(arms: "Sequence[Arm]") -> str:
    """Which arms a complaint is about."""
    return f"arm {arms[0].title!r}" + (f" and {len(arms) - 1} more" if len(arms) > 1 else "")


def in_one_message(file: str, found: Mapping[str, Place | None]) -> str:
    """A file and its mistake; or the file, and a line for each mistake, from the first line of it to the last."""
    name = file if file.isprintable() else repr(file)
    ordered = sorted(found.items(), key=lambda one: one[1].order(file) if one[1] else (0, 0))
    located = [f"{place.seen_from(file)}: {told}" if place else told for told, place in ordered]
    if len(located) > 1:
        return "\n  ".join([f"{name}:", *located])
    (place,) = found.values()
    return f"{name}, {located[0]}" if place and place.where == file and place.line else f"{name}: {located[0]}"


def section_of(maker: type[Result], name: str, told: Any) -> Result:
    """A section of settings; its complaints gain its name."""
    if not isinstance(told, Mapping):
        raise ConfigError(f"{name}: a mapping of settings is needed, got {told!r}.")
    try:
        return settings_from(maker, told)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{name}.{line}" for line in str(error).splitlines())) from error
