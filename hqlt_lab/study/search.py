"""What is searched, in Optuna's words.  Where one tuned axis is a range, lists are searched along with it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.tune import Range

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Tune = Mapping[str, list[Any] | Range]


def space(tune: Tune) -> "dict[str, BaseDistribution]":
    """Searched path -> where its values lie; empty for a grid."""
    if not any(isinstance(axis, Range) for axis in tune.values()):
        return {}
    return {path: distribution(axis) for path, axis in tune.items()}


def distribution(axis: list[Any] | Range) -> "BaseDistribution":
    """Whole numbers stay whole; of a list the places are searched, because its values may be parts."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, list):
        return CategoricalDistribution(range(len(axis)))
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return IntDistribution(axis.low, axis.high, log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def length(tune: Tune) -> int:
    """Points that are tried per arm: the largest number that any range asks for."""
    return max(axis.trials for axis in tune.values() if isinstance(axis, Range))


def point_of(values: Mapping[str, Any], tune: Tune) -> dict[str, Any]:
    """A trial's parameters as tuned values."""
    found: dict[str, Any] = {}
    for path, axis in tune.items():
        found[path] = axis[values[path]] if isinstance(axis, list) else values[path]
    return found


def values_of(point: Mapping[str, Any], tune: Tune) -> dict[str, Any]:
    """The way back."""
    return {path: axis.index(point[path]) if isinstance(axis, list) else point[path] for path, axis in tune.items()}
