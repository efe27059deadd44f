"""What was done so that arms are equally large, in a line below the table."""

from collections.abc import Sequence

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.matched import in_percent, matched
from hqlt_lab.report.rows import Row


def matching_notes(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """One line, if arms were matched: to whom, by what, and how far off the worst of them is."""
    points = {row.title: row.point for row in rows if not row.quoted and row.point is not None}
    known = [matched(experiment, arm, points[arm.title]) for arm in experiment.arms if arm.title in points]
    found = [one for one in known if one is not None]
    if not found:
        return []
    to = dict.fromkeys(one.to for one in found)
    whom = repr(next(iter(to))) if len(to) == 1 else "the first arm with the same crossed sizes"
    worst = max((one.residual for one in found), key=abs)
    return [
        f"Arms are matched on {found[0].on} to {whom} by {found[0].by}: largest residual {in_percent(worst)}.",
    ]
