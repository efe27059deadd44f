"""What the numbers of a table mean: a sentence each, below it."""

from collections.abc import Sequence

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.chance import FEWEST
from hqlt_lab.report.intervals import BOOTSTRAP_FROM
from hqlt_lab.report.matching import matching_notes
from hqlt_lab.report.protocols import asked_by
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.words import counted, shown


def notes(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """What was measured, and how points were chosen."""
    measure = experiment.measure
    larger = [metric for metric in reported(measure) if measure.way(metric) == "maximize"]
    smaller = [metric for metric in reported(measure) if metric not in larger]
    told = [
        f"{', '.join(names)}: {word} is better." for names, word in ((larger, "larger"), (smaller, "smaller")) if names
    ]
    if measure.solved is not None:
        bound = "at least" if reported(measure)[0] in larger else "at most"
        told.append(f"A seed solves the task with {reported(measure)[0]} of {bound} {shown(measure.solved)}.")
    told += about_seeds(rows, measure)
    budgets = {(row.points, row.cells) for row in rows if not row.quoted}
    if experiment.tune and len(budgets) == 1:
        points, cells = budgets.pop()
        tried = f"{counted(points, 'point')} ({counted(cells, 'cell')}) for every arm"
        told.append(f"{', '.join(experiment.tune)} chosen by the {measure.statistic} of {measure.select}: {tried}.")
    told += asked_by([record for row in rows for record in row.records], reported(measure))
    return told + matching_notes(experiment, rows)


def about_seeds(rows: Sequence[Row], measure: MeasureConfig) -> list[str]:
    """How the intervals and the verdicts came about."""
    summaries = [summary for row in rows for summary in row.summaries.values()]
    found = [one for row in rows for one in row.differences.values() if one.n > 1]
    told = []
    if any(summary.over == "examples" for summary in summaries):
        told.append("One seed: the interval is over the examples of the test and says nothing of other seeds.")
    if measure.interval == "bootstrap" and any(summary.n >= BOOTSTRAP_FROM for summary in summaries):
        told.append(f"Intervals of means from {BOOTSTRAP_FROM} seeds on: bootstrap (BCa).")
    if found:
        margin = f" of at least {shown(measure.margin)}" if measure.margin else ""
        told.append(
            "difference: to the baseline, paired by seed; t-intervals corrected by Holm's method. "
            f"better, worse: the interval excludes a difference of 0{f', and it is one{margin}' if margin else ''}."
        )
        told.append(f"p (signs): exact permutation test, from {FEWEST} seeds on.")
    if any(one.fisher is not None for one in found):
        told.append("p (solved): Fisher's exact test of the solved fractions.")
    return told
