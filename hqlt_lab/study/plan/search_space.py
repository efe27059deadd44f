"""The search space of a study: tuned axes as Optuna distributions, and points as parameters of an Optuna trial.

If any tuned axis is a range, all axes are searched; lists then become categorical axes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.parse_axes import Range

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TuneAxes = Mapping[str, list[Any] | Range]


def build_search_space(tune: TuneAxes) -> "dict[str, BaseDistribution]":
    """Map each tuned path to an Optuna distribution; empty for a grid."""
    if not any(isinstance(axis, Range) for axis in tune.values()):
        return {}
    return {path: make_distribution(axis) for path, axis in tune.items()}


def make_distribution(axis: list[Any] | Range) -> "BaseDistribution":
    """Return the Optuna distribution of one axis: integers stay integers, and a list is searched by its indices.

    Indices are used because the values of a list may be components, which Optuna cannot store as categories.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, list):
        return CategoricalDistribution(range(len(axis)))
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return IntDistribution(axis.low, axis.high, log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def count_trials(tune: TuneAxes) -> int:
    """Return the number of points per arm: the largest `trials` of any range."""
    return max(axis.trials for axis in tune.values() if isinstance(axis, Range))


def point_from_params(params: Mapping[str, Any], tune: TuneAxes) -> dict[str, Any]:
    """Convert the parameters of an Optuna trial to tuned values."""
    point: dict[str, Any] = {}
    for path, axis in tune.items():
        point[path] = axis[params[path]] if isinstance(axis, list) else params[path]
    return point


def params_from_point(point: Mapping[str, Any], tune: TuneAxes) -> dict[str, Any]:
    """Convert tuned values to the parameters of an Optuna trial."""
    return {path: axis.index(point[path]) if isinstance(axis, list) else point[path] for path, axis in tune.items()}
