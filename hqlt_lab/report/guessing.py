"""Whether anything was learned: arms that all guess are not worth comparing."""

from collections.abc import Sequence
from contextlib import suppress

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import points
from hqlt_lab.registry import build
from hqlt_lab.report.rows import Row, reported

SPREAD = 3.0  # standard errors over the test's examples, within which a seed may have guessed
UNKNOWN = 5.0  # percent, where the error of a seed is not known
SHORT = "short_"


def all_guess(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """A sentence if no arm is better than guessing, on texts as long as in training either."""
    metric = reported(experiment.measure)[0]
    known = [(row, level) for row, level in zip(arms, levels(experiment, arms, metric), strict=True) if row.summaries]
    if not known or not all(level is not None and guesses(row, metric, level) for row, level in known):
        return []
    return [
        f"No arm does better than guessing ({metric}): train longer (train.steps) or make the task easier before "
        "comparing arms."
    ]


def levels(experiment: Experiment, arms: Sequence[Row], metric: str) -> list[float | None]:
    """What guessing reaches in each arm's task; None where the task does not say it of this metric."""
    found: list[float | None] = []
    for arm, row in zip(experiment.arms, arms, strict=True):
        level = None
        if experiment.base.get("task") and experiment.measure.way(metric) == "maximize":
            cell = experiment.cell(arm, row.point or next(points(experiment.tune)), experiment.seeds[0])
            with suppress(HqltError):  # its data, or the part itself, may not be here
                level = build("task", cell.task).by_guessing.get(metric.partition("/")[2].removeprefix(SHORT))
        found.append(level)
    return found


def guesses(row: Row, metric: str, level: float) -> bool:
    """Whether the mean may be that of guessing, and no single seed, nor on short texts, is clearly above."""
    summary = row.summaries.get(metric)
    if summary is None or (summary.low is not None and summary.low > level):
        return False
    short = f"valid/{SHORT}{metric.partition('/')[2].removeprefix(SHORT)}"
    return all(
        record.metrics.get(name, level) <= level + SPREAD * record.errors.get(metric, UNKNOWN / SPREAD)
        for record in row.done
        for name in (metric, short)
    )
