"""What a reader should know before believing the table, in sentences."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import points
from hqlt_lab.experiment.tune import Range
from hqlt_lab.report.curves import end_of_curve, late_fall
from hqlt_lab.report.differences import baselines_of
from hqlt_lab.report.guessing import all_guess
from hqlt_lab.report.protocols import mixed
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.words import counted, joined, shown
from hqlt_lab.study.record import Record, State

EDGE = 0.05  # of a searched range, at either end
FALL = 0.05  # of the loss, from one tenth of the steps to the next
WIDTH = 300  # of what a cell says went wrong


def warnings_of(experiment: Experiment, rows: Sequence[Row], records: Sequence[Record]) -> list[str]:
    """Every doubt, the ones about the comparison first."""
    arms = [row for row in rows if not row.quoted]
    return [
        *all_guess(experiment, arms),
        *without_baseline(experiment, arms),
        *on_the_edge(experiment, arms),
        *unequal_budgets(experiment, arms),
        *still_falling(arms),
        *longer_than_trained(experiment, arms),
        *mixed(records, reported(experiment.measure)),
        *other_code(records),
        *changed_since(records),
        *lost(records),
        *experiment.warnings,
    ]


def without_baseline(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """A baseline that came to nothing leaves its arms without a verdict."""
    known = {row.title for row in arms if row.summaries}
    waiting = {baseline for title, baseline in baselines_of(experiment.arms).items() if title in known} - known
    names = [row.title for row in arms if row.title in waiting]
    verb = "has" if len(names) == 1 else "have"
    return [f"{joined(names, 6)} {verb} no result, so that nothing is compared with it."] if names else []


def on_the_edge(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """The best value of a grid may lie beyond it."""
    return [
        f"{row.title}: the chosen {path} {shown(value)} lies on the edge of {spelled(experiment.tune[path])}; "
        "a better value may lie beyond."
        for row in arms
        if row.summaries and row.point
        for path, value in row.point.items()
        if is_edge(value, experiment.tune.get(path, []))
    ]


def is_edge(value: Any, axis: list[Any] | Range) -> bool:
    """Smallest or largest number of a list; near an end of a range, in log space where it is searched so."""
    if not is_number(value):
        return False
    if isinstance(axis, Range):
        low, here, high = (math.log(x) if axis.log else x for x in (axis.low, value, axis.high))
        return not EDGE < (here - low) / (high - low) < 1 - EDGE
    numbers = [one for one in axis if is_number(one)]
    return len(numbers) > 1 and value in (min(numbers), max(numbers))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def spelled(axis: list[Any] | Range) -> str:
    """its grid [0.001, 0.01], its range 0.0001 to 0.1"""
    if isinstance(axis, Range):
        return f"its range {shown(axis.low)} to {shown(axis.high)}"
    return f"its grid [{', '.join(shown(value) for value in axis)}]"


def unequal_budgets(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """An arm that was tuned longer looks better than it is."""
    if not experiment.tune or len({row.cells for row in arms}) < 2:
        return []
    told = ", ".join(f"{row.title} {row.cells}" for row in arms)
    return [f"The arms were tuned with unequal budgets; finished tuning cells: {told}."]


def still_falling(arms: Sequence[Row]) -> list[str]:
    """More steps might change the order."""
    falls = {row.title: fall_of(row) for row in arms}
    return [
        f"{title}: the training loss was still falling, by {100 * fall:.0f} % over the last tenth of the steps; "
        "with more steps the arm may do better."
        for title, fall in falls.items()
        if fall > FALL
    ]


def fall_of(row: Row) -> float:
    """By how much the loss fell at the end, in the median seed.  An arm that solves the task has no further to go."""
    if any(summary.solved and summary.solved[0] == summary.solved[1] for summary in row.summaries.values()):
        return 0.0
    falls = [late_fall(end_of_curve(record.folder, "train/loss")) for record in row.done]
    return statistics.median([fall for fall in falls if fall is not None] or [0.0])


def longer_than_trained(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Numbers about lengths that were never trained are about extrapolation."""
    pairs = []
    for arm, row in zip(experiment.arms, arms, strict=True):
        task = experiment.cell(arm, row.point or next(points(experiment.tune)), experiment.seeds[0]).task
        if "train_length" in task and "test_length" in task:
            pairs.append((max(task["test_length"]), max(task["train_length"])))
    beyond = dict.fromkeys(f"up to {test}, trained up to {train}" for test, train in pairs if test > train)
    return [f"The test has lengths that were never trained: {'; '.join(beyond)}."] if beyond else []


def other_code(records: Sequence[Record]) -> list[str]:
    """Results of different code do not compare."""
    done = [record for record in records if record.state == "done"]
    names = dict.fromkeys(name for record in done for name in record.code)
    found = []
    for name in names:
        versions = Counter(record.code[name] for record in done if name in record.code)
        if len(versions) > 1:
            cells = " and ".join(str(count) for _, count in versions.most_common())
            found.append(
                f"The finished cells were made by {len(versions)} versions of {'the lab' if name == 'lab' else name} "
                f"({cells} cells). `hqlt forget` drops the old ones, `hqlt run --again` makes them anew."
            )
    return found


def changed_since(records: Sequence[Record]) -> list[str]:
    """Results of code that is not there any more."""
    arms = dict.fromkeys(record.arm.split(", ")[0] for record in records if record.changed)
    names = dict.fromkeys(name for record in records for name in record.changed)
    if not names:
        return []
    cells = counted(sum(bool(record.changed) for record in records), "finished cell")
    sources = joined(["the lab's own code" if name == "lab" else name for name in names], 6)
    sources = sources.replace("the lab's", "The lab's", 1) if sources.startswith("the lab's") else sources
    anew = f"`hqlt run FILE --again --only {','.join(f'arm={arm}' for arm in arms)}`"
    return [
        f"{sources} changed since {cells} {'was' if cells.startswith('1 ') else 'were'} trained; {anew} trains anew."
    ]


def lost(records: Sequence[Record]) -> list[str]:
    """Cells without a result, each kind in a line."""
    kinds: dict[State, str] = {
        "failed": "failed",
        "diverged": "diverged",
        "pruned": "ended early",
        "running": "still running",
        "waiting": "still waiting",
    }
    there = {state: [record for record in records if record.state == state] for state in kinds}
    return [
        f"{counted(len(cells), 'cell')} {kinds[state]}{first_why(cells)}." for state, cells in there.items() if cells
    ]


def first_why(cells: Sequence[Record]) -> str:
    """; delta, seed 1: CUDA out of memory"""
    for record in cells:
        if record.why.strip():
            return f"; {record.arm}, seed {record.seed}: {shorten(record.why, WIDTH, placeholder=' ...').rstrip('.')}"
    return ""
