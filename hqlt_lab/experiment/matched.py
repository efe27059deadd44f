"""Arms of equal size: one setting of an arm is solved so that it is as large as its reference, which stays as written.

    residual = (size - size of the reference) / size of the reference,   at most `within`

The reference is the first arm with the same crossed levels, of those that are sizes of the model (width, layers, heads,
mlp_width) or not of the model at all; crossed parts and switches are composition, and are matched to the first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.errors import ConfigError, HqltError
from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.experiment.match import flat, otherwise
from hqlt_lab.experiment.settings import MatchConfig
from hqlt_lab.experiment.solve import Found, by_halving, on_a_line
from hqlt_lab.model.config import inner_width
from hqlt_lab.registry import build

if TYPE_CHECKING:
    from hqlt_lab.experiment.experiment import Arm, Experiment

SIZES = ("model.width", "model.layers", "model.heads", "model.mlp_width")
WORDS = {"parameters": "parameters", "state": "state bytes", "flops": "training FLOPs per token"}


class Matched(NamedTuple):
    """How an arm was made as large as its reference."""

    to: str  # the reference's title
    on: str
    by: str
    value: int
    residual: float
    kept: bool  # the value is the one that the file gives

    def __str__(self) -> str:
        return f"{self.by} {self.value}, {self.on} {in_percent(self.residual)}"


def in_percent(residual: float) -> str:
    """+0.4 %"""
    return f"{round(100 * residual, 1) + 0.0:+.1f} %"


def references(arms: "Sequence[Arm]") -> "dict[str, Arm]":
    """The reference of each arm, by its title."""
    firsts: dict[str, Arm] = {}
    return {arm.title: firsts.setdefault(digest(sizes_among(arm.levels)), arm) for arm in arms}


def sizes_among(levels: Mapping[str, Any]) -> dict[str, Any]:
    """The crossed levels that are not composition."""
    return {
        path: value for path, value in flat(levels).items() if path in SIZES or not path.startswith("model.")
    }  # model.timing.window is a setting of a part


def matched(
    experiment: "Experiment", arm: "Arm", point: Mapping[str, Any], written: Cell | None = None
) -> Matched | None:
    """How an arm is matched at a tuned point; None: it is a reference, or nothing is matched."""
    match, known = experiment.match, experiment.counted
    if match is None or (reference := experiment.references[arm.title]).title == arm.title:
        return None
    name = digest([arm.title, point])
    if name not in known:
        wanted = wanted_of(experiment, reference, point)
        cell = written or experiment.as_written(arm, point, 0)
        composition = digest([cell.task, cell.model, reference.title, wanted])
        if composition not in known:
            known[composition] = solved(cell, match, wanted, reference.title, known)
        known[name] = known[composition]
    return known[name]


def wanted_of(experiment: "Experiment", reference: "Arm", point: Mapping[str, Any]) -> float:
    """How large the reference is, counted once."""
    assert experiment.match is not None
    name = digest(["wanted", reference.title, point])
    if name not in experiment.counted:
        cell = experiment.as_written(reference, point, 0)
        experiment.counted[name] = size_of(cell, experiment.match.on)
    return experiment.counted[name]


def solved(cell: Cell, match: MatchConfig, wanted: float, to: str, known: dict[str, Any]) -> Matched:
    """The setting that makes this cell as large as wanted; `known` has what was counted for others."""
    by, written = match.setting, written_value(cell, match.setting)
    size = cache(lambda value: size_of(cell.with_model(**{by: value}), match.on))
    found: Found | None = Found(written, size(written))
    if found is not None and found.size != wanted:
        if by == "mlp_width":
            found = on_a_line(found, slope(cell, match.on, size, known), wanted, match.within)
        else:
            found = by_halving(size, found, wanted, 2 * cell.model["heads"])
    if found is None:
        raise ConfigError(f"match: the {WORDS[match.on]} of this arm do not depend on {by}{otherwise(match)}.")
    residual = (found.size - wanted) / wanted
    if abs(residual) > match.within:
        raise ConfigError(
            f"match: with {by} {found.value}, the nearest, it has {found.size:.0f} {WORDS[match.on]} and {to!r} has "
            f"{wanted:.0f}: {100 * residual:+.2g} %, and {100 * match.within:.3g} % are allowed. Raise match.within "
            f"or use a larger model{otherwise(match)}."
        )
    return Matched(to, match.on, by, found.value, residual, kept=found.value == written)


def written_value(cell: Cell, setting: str) -> int:
    """Of the solved setting, also where the file leaves it open."""
    model = cell.model
    return model["width"] if setting == "width" else inner_width(model["width"], model["mlp"], model["mlp_width"])


def slope(cell: Cell, on: str, size: Callable[[int], float], known: dict[str, Any]) -> float:
    """What one more channel of the MLPs adds: the same for all models with such MLPs, whatever else they have."""
    name = digest(["slope", on, *(cell.model[word] for word in ("width", "layers", "mlp", "bias"))])
    if name not in known:
        few = written_value(cell, "mlp_width")
        known[name] = size(few + 1) - size(few)
    return known[name]


def size_of(cell: Cell, on: str) -> float:
    """Parameters, bytes of state after the longest training row, or FLOPs per token of training on it."""
    from hqlt_lab.model.sizes import of_parameters, of_states, sizes

    task = build("task", cell.task)
    try:
        model = on_meta(cell, task.vocabulary).eval()
    except HqltError as error:
        raise ConfigError("\n".join(f"model.{line}" for line in str(error).splitlines())) from error
    length = task.tokens_in("train")
    if on == "parameters":
        return sum(size.parameters for size in of_parameters(model))
    if on == "state":
        return sum(size.state for size in of_states(model, length))
    return sizes(model, length).total.training / length


def matches(experiment: "Experiment", cells: Iterable[Cell]) -> Iterator[Matched | None]:
    """How each of these planned cells was matched."""
    arms = {arm.title: arm for arm in experiment.arms}
    for cell in cells:
        arm = arms[cell.arm]
        yield matched(experiment, arm, {path: value for path, value in cell.axes.items() if path not in arm.levels})
