"""Hyperparameter importance by functional ANOVA (fANOVA) over all finished cells, including tuning cells.

    importance of x      variance of f(x), averaged over the other parameters, as a fraction of the variance of f

f is a random forest fitted to the selection metric (Hutter, Hoos, Leyton-Brown 2014). Importance describes what
mattered within the searched range, not what would improve results, so it is computed only on request.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.apply_overrides import format_value
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.study.ledger.cell_record import CellRecord

ScoredSettings = tuple[Mapping[str, Any], float]  # settings of a cell and its value of the selection metric

MIN_CELLS = 4  # fewer cells are not enough to fit a forest
ALL_ARMS = "all arms"


def compute_importance(experiment: Experiment, records: Sequence[CellRecord]) -> dict[str, dict[str, float]]:
    """Return the importance of each path by arm title.

    The first entry covers all arms, with the arm and the crossed axes as additional parameters.
    """
    select = experiment.measure.select
    done = [
        record for record in records if record.state == "done" and math.isfinite(record.metrics.get(select, math.nan))
    ]
    names = {arm.title: arm.name for arm in experiment.arms}
    all_cells = [
        ({"arm": names[record.arm], **record.levels, **record.point}, record.metrics[select]) for record in done
    ]
    importances = {ALL_ARMS: fanova_importances(all_cells, experiment.tune)}
    if experiment.tune:
        for arm in experiment.arms:
            cells = [(dict(record.point), record.metrics[select]) for record in done if record.arm == arm.title]
            importances[arm.title] = fanova_importances(cells, experiment.tune)
    return {title: by_path for title, by_path in importances.items() if by_path}


def fanova_importances(cells: Sequence[ScoredSettings], tune: Mapping[str, list[Any] | Range]) -> dict[str, float]:
    """Return the importance of each path, largest first; empty with too few cells or if nothing varies."""
    columns = varying_columns([point for point, _ in cells], tune)
    if len(cells) < MIN_CELLS or not columns or len({value for _, value in cells}) == 1:
        return {}
    import optuna

    distributions = {path: optuna_distribution(values, tune.get(path)) for path, values in columns.items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for number, (_, value) in enumerate(cells):
        params = {path: values[number] for path, values in columns.items()}
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))
    # Not optuna.importance.get_param_importances: it normalizes the sum to 1, and its default evaluator (PED-ANOVA)
    # measures importance near the optimum only.
    importances = optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)
    return dict(sorted(importances.items(), key=lambda pair: -pair[1]))


def varying_columns(points: Sequence[Mapping[str, Any]], tune: Mapping[str, list[Any] | Range]) -> dict[str, list[Any]]:
    """Return the values of each path in all cells, without paths that are constant or missing in some cells."""
    paths = [path for path in dict.fromkeys(path for point in points for path in point)]
    columns = {
        path: [point[path] if isinstance(tune.get(path), Range) else format_value(point[path]) for point in points]
        for path in paths
        if all(path in point for point in points)
    }
    return {path: values for path, values in columns.items() if len(set(values)) > 1}


def optuna_distribution(values: Sequence[Any], axis: list[Any] | Range | None) -> Any:
    """Return the Optuna distribution of an axis: that of a searched range, else categorical."""
    from optuna.distributions import CategoricalDistribution

    from hqlt_lab.study.plan.search_space import make_distribution

    return make_distribution(axis) if isinstance(axis, Range) else CategoricalDistribution(list(dict.fromkeys(values)))
