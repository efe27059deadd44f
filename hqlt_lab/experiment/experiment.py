"""An experiment file, read strictly: all that is wrong with it is told in one message, before anything trains."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.change import AXES, VARIED, changed, label
from hqlt_lab.experiment.complaints import Complaints, section_of
from hqlt_lab.experiment.composition import ALLOWED
from hqlt_lab.experiment.evaluation import EvaluateConfig, evaluation_of, unasked
from hqlt_lab.experiment.extent import check_extent
from hqlt_lab.experiment.fill import Known, fill_part, filled
from hqlt_lab.experiment.match import conflicts, match_of
from hqlt_lab.experiment.matched import matched, references
from hqlt_lab.experiment.metrics import metrics_of
from hqlt_lab.experiment.places import Places
from hqlt_lab.experiment.read import read
from hqlt_lab.experiment.references import resolved
from hqlt_lab.experiment.settings import MatchConfig, MeasureConfig, PruneConfig
from hqlt_lab.experiment.tune import Range, grid, tuning

SECTIONS = (
    "question", "task", "model", "train", "agent", "trainer", "ops", "arms", "cross", "one_at_a_time", "match", "tune",
    "seeds", "tune_seeds", "prune", "measure", "evaluate", "published", "quoted", "launcher",
)  # fmt: skip
SEEDS, TUNE_SEEDS = 3, 1  # where a file does not say
LONGEST_NAME = 150  # of an experiment; what is beside it in its folder has longer ones
FIRST_TUNE_SEED = 1000  # `tune_seeds: 2` is 1000, 1001: however many `seeds` there will be, none was tuned on


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One thing to compare: an arm of the file at one choice of the crossed levels."""

    name: str
    levels: Mapping[str, Any] = field(default_factory=dict)  # crossed path -> value
    changes: Mapping[str, Any] = field(default_factory=dict)  # the arm's own
    allow: tuple[str, ...] = ()  # what would be a mistake, but is meant here

    @property
    def place(self) -> str:
        """Where the file has its changes."""
        return f"arms.{self.name}"

    @cached_property
    def title(self) -> str:
        """synchronous, mixer=sum"""
        return ", ".join([self.name, *(label(path, value, self.levels) for path, value in self.levels.items())])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, and all that is needed to answer it."""

    name: str
    question: str
    base: Mapping[str, Any]  # task, model, train, agent, trainer, ops as written, interpolation unresolved
    arms: tuple[Arm, ...]
    tune: Mapping[str, list[Any] | Range]
    seeds: tuple[int, ...]
    tune_seeds: tuple[int, ...]
    measure: MeasureConfig
    published: Mapping[str, Any]
    quoted: Mapping[str, Any]
    match: MatchConfig | None = None  # None: every arm is as large as it is written
    prune: PruneConfig | None = None  # None: every cell is trained to its end
    evaluate: EvaluateConfig | None = None  # None: no language model is asked anything after training
    launcher: Mapping[str, Any] = field(default_factory=lambda: {"name": "local"})
    warnings: tuple[str, ...] = ()
    file: Path = field(default=Path(), compare=False)  # where it was read
    change: tuple[str, ...] = field(default=(), compare=False)  # and with which overrides
    known: dict[str, Cell] = field(default_factory=dict, init=False, repr=False, compare=False)  # cells that were made
    sections: Known = field(default_factory=dict, init=False, repr=False, compare=False)  # that were filled
    counted: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what `match` knows of sizes

    @property
    def final_seeds(self) -> list[int]:
        """The seeds that are reported: after a search, none that it was made on."""
        searched = any(isinstance(axis, Range) for axis in self.tune.values())
        return [seed for seed in self.seeds if not (searched and seed in self.tune_seeds)]

    @cached_property
    def references(self) -> dict[str, Arm]:
        """Which arm each is matched to, by title."""
        return references(self.arms)

    def cell(self, arm: Arm, point: Mapping[str, Any], seed: int) -> Cell:
        """One thing to train: that arm, with these tuned values, and as large as it is to be."""
        place = json.dumps([arm.name, arm.levels, arm.changes, point])
        if place not in self.known:
            cell = self.as_written(arm, point, seed)
            found = matched(self, arm, point, cell)
            self.known[place] = cell if found is None or found.kept else cell.with_model(**{found.by: found.value})
        return replace(self.known[place], seed=seed)

    def as_written(self, arm: Arm, point: Mapping[str, Any], seed: int) -> Cell:
        """The same before it is matched."""
        told = changed(changed(self.base, arm.changes, VARIED, arm.place), {**arm.levels, **point}, VARIED, AXES)
        sections = filled(resolved(told), self.sections)
        return Cell(**sections, measure=self.measure, seed=seed, arm=arm.title, axes=dict(arm.levels) | dict(point))


def load(file: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment file; `overrides` are path=value changes to its base."""
    path = Path(file)
    places = Places()
    told = read(path, overrides, places)
    found = Complaints(path, places)
    found.gather(check_name, path.stem)
    for word in told:
        if word not in SECTIONS:
            known = (*SECTIONS, "extends")
            found.add(f"{word}: there is no such section.{did_you_mean(word, known)} Sections: {listed(known)}.")
    if not isinstance(told.get("question"), str) or not told["question"].strip():
        found.add("question: say in a sentence what the experiment asks.")
    right = told | found.readable(told)
    if not found.passes(check_extent, right, SEEDS, TUNE_SEEDS):
        found.stop()  # it would take too long to look at the rest
    experiment = Experiment(
        name=path.stem,
        question=str(told.get("question", "")).strip(),
        base={word: told.get(word, {}) for word in VARIED},
        arms=tuple(right_arms(right, found)) or (Arm(name="base"),),
        tune=tuning(right.get("tune", {})),
        seeds=found.gather(seeds_of, told, "seeds", SEEDS) or (0,),
        tune_seeds=found.gather(seeds_of, told, "tune_seeds", TUNE_SEEDS, FIRST_TUNE_SEED) or (0,),
        measure=found.gather(section_of, MeasureConfig, "measure", told.get("measure", {})) or MeasureConfig(),
        published=right.get("published", {}),
        quoted=right.get("quoted", {}),
        match=found.gather(match_of, told.get("match")),
        prune=found.gather(prune_of, told),
        evaluate=found.gather(evaluation_of, told.get("evaluate")),
        launcher=found.gather(launcher_of, told) or {},
        file=path,
        change=tuple(overrides),
    )
    metrics = metrics_of(told.get("measure"))
    if not experiment.final_seeds:
        found.add(f"seeds: {list(experiment.seeds)} were all tuned on (tune_seeds). Add one that was not.")
    for sentence in conflicts(right, experiment.match) if experiment.match else ():
        found.add(sentence)
    if "evaluate" not in told or experiment.evaluate:  # a complaint about the section is enough
        for sentence in unasked(metrics["measure.report"], experiment.evaluate):
            found.add(sentence)
    found.rows(experiment)
    found.compositions(experiment, metrics)
    found.unread(experiment)
    found.stop()
    found.texts(experiment)
    found.stop()
    checked = replace(experiment, warnings=tuple(found.warnings))
    checked.known.update(experiment.known)
    return checked


def check_name(name: str) -> None:
    """A study's folder and its runs are called like its file."""
    if name.startswith(".") or not name.isprintable() or len(name.encode()) > LONGEST_NAME:
        raise ConfigError(
            f"{name[:60]!r}: a study is called like its file, in at most {LONGEST_NAME} letters that can be seen, "
            "and not with a point first. Rename the file."
        )


def arms_of(told: Mapping[str, Any]) -> list[Arm]:
    """The file's arms, at every choice of crossed levels; or each with one axis changed at a time."""
    named, levels = told.get("arms") or {"base": {}}, levels_of(told)
    return [arm_of(str(name), changes, level) for name, changes in named.items() for level in levels]


def right_arms(told: Mapping[str, Any], found: Complaints) -> Iterator[Arm]:
    """Those that can be read; of the others it is complained."""
    levels = found.gather(levels_of, told) or [{}]
    for name, changes in (told.get("arms") or {"base": {}}).items():
        for level in levels:
            if (arm := found.gather(arm_of, str(name), changes, level)) is not None:
                yield arm


def levels_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every choice of crossed levels; or the base, and then one change at a time."""
    if "cross" in told and "one_at_a_time" in told:
        raise ConfigError("cross, one_at_a_time: use one of them.")
    axes, single = grid(told.get("cross", {}), "cross"), grid(told.get("one_at_a_time", {}), "one_at_a_time")
    levels = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [*levels, *({path: value} for path, values in single.items() for value in values)]


def arm_of(name: str, given: Any, levels: Mapping[str, Any]) -> Arm:
    """Its changes, and what it allows."""
    told = {} if given is None else given
    if not isinstance(told, Mapping):
        raise ConfigError(f"arms.{name}: an arm is a mapping of changes, such as {{model.mixer: sum}}; got {told!r}.")
    allow = told.get("allow", [])
    if not isinstance(allow, list):
        raise ConfigError(f"arms.{name}.allow: a list is needed, such as [{ALLOWED[0]}]; got {allow!r}.")
    for word in allow:
        if word not in ALLOWED:
            nearest, all_of_them = did_you_mean(str(word), ALLOWED), listed(ALLOWED)
            raise ConfigError(f"arms.{name}.allow: {word!r} cannot be allowed.{nearest} There is: {all_of_them}.")
    changes = {str(path): value for path, value in told.items() if path != "allow"}
    return Arm(name=name, levels=levels, changes=changes, allow=tuple(allow))


def prune_of(told: Mapping[str, Any]) -> PruneConfig | None:
    """Whether hopeless cells are given up: only where something is tuned, because seeds are not to be selected."""
    if told.get("prune") is None:
        return None
    if not told.get("tune"):
        raise ConfigError("prune: nothing is tuned, and giving up bad seeds would make an arm look better than it is.")
    return section_of(PruneConfig, "prune", told["prune"])


def launcher_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """Who trains the cells, and with how much of the machine."""
    given = told.get("launcher", "local")
    return fill_part("launcher", {"name": "local", **given} if isinstance(given, Mapping) else given, "launcher")


def seeds_of(told: Mapping[str, Any], word: str, default: int, first: int = 0) -> tuple[int, ...]:
    """`seeds: 3` is 0, 1, 2; a list is itself."""
    given = told.get(word, default)
    seeds = list(range(first, first + given)) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds):
        raise ConfigError(f"{word}: a number of seeds or a list of them is needed, got {given!r}.")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"{word}: {given!r} holds a seed twice.")
    return tuple(seeds)
