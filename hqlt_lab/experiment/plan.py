"""Arms x tuning points x seeds: the cells of an experiment, each with the key that names it.

The key hashes what can change the result: task, model, train, seed, precision, without what is at its default and
without what no memory reads.  The arm's name, the devices and what is logged or kept are not in it: two experiments
that train the same thing share it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.experiment.cell import NOT_IN_THE_KEY, Cell, digest
from hqlt_lab.experiment.change import short, spelled_value
from hqlt_lab.experiment.fill import bare_model, bare_part, bare_settings
from hqlt_lab.experiment.tune import Range

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Experiment

Item = TypeVar("Item")


class Planned(NamedTuple):
    """A cell and its key."""

    key: str
    cell: Cell


def plan(experiment: "Experiment") -> list[Planned]:
    """All cells whose values are known: searched ranges come later, point by point."""
    return [
        one
        for arm in experiment.arms
        for point in lists_only(experiment.tune)
        for one in with_seeds(experiment.cell(arm, point, 0), experiment.seeds)
    ]


def with_seeds(cell: Cell, seeds: Sequence[int]) -> list[Planned]:
    """The same cell with each of these seeds: nothing else of it depends on the seed."""
    told = what_counts(cell)
    return [Planned(digest({**told, "seed": seed}), replace(cell, seed=seed)) for seed in seeds]


def key_of(cell: Cell) -> str:
    """The same for cells that must give the same result."""
    return digest({**what_counts(cell), "seed": cell.seed})


def what_counts(cell: Cell) -> dict[str, Any]:
    """All but the seed that can change a result."""
    train = bare_settings(cell.train, NOT_IN_THE_KEY)
    told: dict[str, Any] = {"task": bare_part("task", cell.task), "model": bare_model(cell.model), "train": train}
    if cell.trainer.precision != "auto":
        told["precision"] = cell.trainer.precision
    if cell.agent is not None:
        told["agent"] = bare_settings(cell.agent, ())
    if ops := bare_settings(cell.ops, ()):
        told["ops"] = ops
    if cell.train.stop_at is not None or cell.train.report == "best_valid":
        told["select"] = [cell.measure.select, cell.measure.direction]
    return told


def points(tune: Mapping[str, list[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Every tuned point; of a searched range its two ends."""
    values = [[axis.low, axis.high] if isinstance(axis, Range) else axis for axis in tune.values()]
    return (dict(zip(tune, choice, strict=True)) for choice in product(*values))


def lists_only(tune: Mapping[str, list[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Every point of the grid, without what is searched."""
    return points({path: axis for path, axis in tune.items() if not isinstance(axis, Range)})


def chosen(planned: list[Planned], only: Sequence[str]) -> list[Planned]:
    """The cells that `--only arm=synchronous,seed=1` means."""
    return select(planned, [words_of(one.cell) for one in planned], only) if only else planned


def select(items: Sequence[Item], known: Sequence[Mapping[str, str]], only: Sequence[str]) -> list[Item]:
    """Those items whose words fit; values of one word are alternatives."""
    wanted = wishes(only)
    for word, values in wanted.items():
        there = {words[word] for words in known if word in words}
        if not there:
            names = sorted({name for words in known for name in words})
            raise ConfigError(
                f"--only {word}=...: nothing is called {word!r}.{did_you_mean(word, names)} There is: {listed(names)}."
            )
        for value in values - there:
            nearest, all_of_them = did_you_mean(value, there), listed(sorted(there))
            raise ConfigError(f"--only {word}={value}: there is no such value.{nearest} There is: {all_of_them}.")
    found = [item for item, words in zip(items, known, strict=True) if fits(words, wanted)]
    if not found:
        asked = only if isinstance(only, str) else ",".join(only)
        raise ConfigError(f"--only {asked}: there is each of these, but no cell that is all of them at once.")
    return found


def fits(words: Mapping[str, str], wanted: Mapping[str, set[str]]) -> bool:
    """Whether something called so is wanted."""
    return all(words.get(word) in values for word, values in wanted.items())


def wishes(only: Sequence[str]) -> dict[str, set[str]]:
    """arm=a,seed=1 and arm=b -> {arm: {a, b}, seed: {1}}."""
    wanted: dict[str, set[str]] = {}
    for condition in (part for text in ([only] if isinstance(only, str) else only) for part in text.split(",")):
        word, equals, value = condition.partition("=")
        if not equals:
            raise ConfigError(f"--only {condition}: a choice is given as name=value, such as arm=NAME or seed=0.")
        wanted.setdefault(word.strip(), set()).add(value.strip())
    return wanted


def words_of(cell: Cell) -> dict[str, str]:
    """What a cell is called: its arm, its seed and its value on every axis, by the short and the whole path."""
    return words(cell.arm.split(", ")[0], cell.seed, cell.axes)


def words(arm: str, seed: int, axes: Mapping[str, Any]) -> dict[str, str]:
    """The same, before there is a cell."""
    spelled = {path: spelled_value(value) for path, value in axes.items()}
    return {"arm": arm, "seed": str(seed)} | spelled | {short(path, axes): word for path, word in spelled.items()}
