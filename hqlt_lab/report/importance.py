"""How much of what varies each hyper-parameter explains: functional ANOVA over all finished cells, tuning included.

    importance of x      variance of f(x), the others averaged out, as a part of the variance of f

f is a random forest fitted to the selected metric (Hutter, Hoos, Leyton-Brown 2014).  It answers what mattered in the
range that was searched, not what would help: it is shown only where it is asked for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.change import spelled_value
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.tune import Range
from hqlt_lab.study.record import Record

Cell = tuple[Mapping[str, Any], float]  # its settings and what it reached

FEWEST = 4  # cells that a forest can say anything about
EVERYTHING = "all arms"


def importance_of(experiment: Experiment, records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Arm -> path -> importance; first over all arms, where the arm and the crossed axes are parameters too."""
    select = experiment.measure.select
    done = [one for one in records if one.state == "done" and math.isfinite(one.metrics.get(select, math.nan))]
    names = {arm.title: arm.name for arm in experiment.arms}
    whole = [({"arm": names[one.arm], **one.levels, **one.point}, one.metrics[select]) for one in done]
    found = {EVERYTHING: importances(whole, experiment.tune)}
    if experiment.tune:
        for arm in experiment.arms:
            own = [(dict(one.point), one.metrics[select]) for one in done if one.arm == arm.title]
            found[arm.title] = importances(own, experiment.tune)
    return {title: each for title, each in found.items() if each}


def importances(cells: Sequence[Cell], tune: Mapping[str, list[Any] | Range]) -> dict[str, float]:
    """Largest first; nothing where there are too few cells, or nothing that varies."""
    columns = varied([point for point, _ in cells], tune)
    if len(cells) < FEWEST or not columns or len({value for _, value in cells}) == 1:
        return {}
    import optuna

    kinds = {path: kind_of(values, tune.get(path)) for path, values in columns.items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for number, (_, value) in enumerate(cells):
        chosen = {path: values[number] for path, values in columns.items()}
        study.add_trial(optuna.create_trial(params=chosen, distributions=kinds, value=value))
    # Optuna's default would ask what matters near the top, and its front door would make every sum 100 %
    found = optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def varied(points: Sequence[Mapping[str, Any]], tune: Mapping[str, list[Any] | Range]) -> dict[str, list[Any]]:
    """Path -> its value in every cell; without what is the same everywhere, or not told everywhere."""
    paths = [path for path in dict.fromkeys(path for point in points for path in point)]
    told = {
        path: [point[path] if isinstance(tune.get(path), Range) else spelled_value(point[path]) for point in points]
        for path in paths
        if all(path in point for point in points)
    }
    return {path: values for path, values in told.items() if len(set(values)) > 1}


def kind_of(values: Sequence[Any], axis: list[Any] | Range | None) -> Any:
    """What Optuna is told about an axis."""
    from optuna.distributions import CategoricalDistribution

    from hqlt_lab.study.search import distribution

    return distribution(axis) if isinstance(axis, Range) else CategoricalDistribution(list(dict.fromkeys(values)))
