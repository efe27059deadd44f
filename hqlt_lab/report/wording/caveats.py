"""Warnings that a reader should know before trusting the results, one sentence each."""

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from hqlt_lab.experiment.cell_filters import format_filters
from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row, build_task, reported_metrics
from hqlt_lab.report.lm_eval_protocol_filter import describe_mixed_protocols
from hqlt_lab.report.read_curves import late_decrease, read_curve_end
from hqlt_lab.report.stats.summary import NORMAL_QUANTILE
from hqlt_lab.report.stats.tuning_windows import is_number
from hqlt_lab.report.value_formatting import format_rounded, join_names
from hqlt_lab.report.wording.tuning_notes import describe_few_tuning_seeds, describe_narrow_windows
from hqlt_lab.rundir.cell_state import CellState
from hqlt_lab.stats.baseline_differences import find_baselines
from hqlt_lab.study.ledger.cell_record import CellRecord

MAX_STANDARD_ERRORS = 3.0  # a seed closer than this to the chance level may be at chance
DEFAULT_TOLERANCE = 5.0  # percent, if the standard error of a seed is not known
SHORT_PREFIX = "short_"


def describe_chance_level(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a warning if no arm is better than chance, neither on the test nor on sequences of the training length."""
    metric = reported_metrics(experiment.measure)[0]
    rows_with_level = [
        (row, level) for row, level in zip(arms, chance_levels(experiment, arms, metric), strict=True) if row.summaries
    ]
    if not rows_with_level or not all(
        level is not None and may_be_at_chance_level(row, metric, level) for row, level in rows_with_level
    ):
        return []
    return [
        f"No arm performs above chance ({metric}). Train longer (train.steps) or make the task easier before "
        "comparing arms."
    ]


def describe_shortcut_scores(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return what shortcuts reach without solving the task, and which arms are not above the best of them."""
    metric = reported_metrics(experiment.measure)[0]
    rows_by_shortcuts: dict[tuple[tuple[str, float], ...], list[Row]] = {}
    for arm, row in zip(experiment.arms, arms, strict=True):
        if metric in row.summaries:
            task = build_task(experiment, arm, row.point)
            scores = {} if task is None else task.shortcut_scores.get(metric.partition("/")[2], {})
            rows_by_shortcuts.setdefault(tuple(scores.items()), []).append(row)
    sentences = []
    for shortcut_scores, rows in rows_by_shortcuts.items():
        if not shortcut_scores:
            continue
        shortcuts = join_names([f"{score:.1f} ({shortcut})" for shortcut, score in shortcut_scores], 6)
        highest = max(score for _, score in shortcut_scores)
        low = [row.title for row in rows if lower_bound(row, metric) <= highest]
        below = f"Arms that are not above the highest of these scores: {join_names(low, 6)}."
        result = below if low else "All arms are above these scores."
        sentences.append(f"Without solving the task, shortcuts reach a {metric} of {shortcuts}. {result}")
    return sentences


def lower_bound(row: Row, metric: str) -> float:
    """Return the lower end of an arm's interval, or of the interval of its test error if that is lower."""
    summary = row.summaries[metric]
    # all seeds are tested on the same examples, so the sampling error of the test does not shrink with their number
    error = max((record.errors.get(metric, 0.0) for record in row.finished_records), default=0.0)
    bound = summary.mean - NORMAL_QUANTILE * error
    return bound if summary.low is None else min(summary.low, bound)


def chance_levels(experiment: Experiment, arms: Sequence[Row], metric: str) -> list[float | None]:
    """Return the chance level of the metric in each arm's task; None where the task defines none."""
    levels: list[float | None] = []
    for arm, row in zip(experiment.arms, arms, strict=True):
        is_maximized = experiment.measure.metric_direction(metric) == "maximize"
        task = build_task(experiment, arm, row.point) if is_maximized else None
        levels.append(task and task.chance_by_metric.get(metric.partition("/")[2].removeprefix(SHORT_PREFIX)))
    return levels


def may_be_at_chance_level(row: Row, metric: str, chance_level: float) -> bool:
    """Return whether an arm may be at chance: its interval includes the chance level, and no seed is clearly above.

    Seeds are checked on the test and on short validation sequences.
    """
    summary = row.summaries.get(metric)
    if summary is None:
        return False
    if summary.low is not None and lower_bound(row, metric) > chance_level:
        return False
    short_metric = f"valid/{SHORT_PREFIX}{metric.partition('/')[2].removeprefix(SHORT_PREFIX)}"
    return all(
        record.metrics.get(name, chance_level)
        <= chance_level + MAX_STANDARD_ERRORS * record.errors.get(metric, DEFAULT_TOLERANCE / MAX_STANDARD_ERRORS)
        for record in row.finished_records
        for name in (metric, short_metric)
    )


EDGE_FRACTION = 0.05  # of a searched range, at each end
MIN_LOSS_DECREASE = 0.05  # relative, from one tenth of the steps to the next
MAX_REASON_LENGTH = 300  # characters of a failure reason


def collect_warnings(experiment: Experiment, rows: Sequence[Row], records: Sequence[CellRecord]) -> list[str]:
    """Collect all warnings, those about the comparison of arms first."""
    arms = [row for row in rows if not row.is_quoted]
    return [
        *describe_chance_level(experiment, arms),
        *describe_shortcut_scores(experiment, arms),
        *describe_missing_baseline(experiment, arms),
        *describe_grid_edge(experiment, arms),
        *describe_narrow_windows(arms),
        *describe_few_tuning_seeds(experiment, arms),
        *describe_unequal_budgets(experiment, arms),
        *describe_decreasing_loss(arms),
        *describe_untrained_lengths(experiment, arms),
        *describe_mixed_protocols(records, reported_metrics(experiment.measure)),
        *describe_mixed_code(records),
        *describe_changed_code(records),
        *describe_failed_analyses(records),
        *describe_unfinished_cells(records),
        *experiment.warnings,
    ]


def describe_missing_baseline(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a warning if a baseline has no result, so that its arms have no verdict."""
    with_result = {row.title for row in arms if row.summaries}
    baselines = {baseline for title, baseline in find_baselines(experiment.arms).items() if title in with_result}
    names = [row.title for row in arms if row.title in baselines - with_result]
    verb = "has" if len(names) == 1 else "have"
    return [f"{join_names(names, 6)} {verb} no result. Arms with this baseline are not compared."] if names else []


def describe_grid_edge(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a warning if a selected value lies on the edge of its grid or range."""
    return [
        f"{row.title}: the selected {path} {format_rounded(value)} is at the edge of "
        f"{describe_axis(experiment.tune[path])}. A value outside may be better."
        for row in arms
        if row.summaries and row.point
        for path, value in row.point.items()
        if is_on_edge(value, experiment.tune.get(path, []))
    ]


def is_on_edge(value: Any, axis: list[Any] | Range) -> bool:
    """Return whether a value is the smallest or largest number of a list, or near an end of a range.

    A range with `log` is measured in log space.
    """
    if not is_number(value):
        return False
    if isinstance(axis, Range):
        low, position, high = (math.log(x) if axis.log else x for x in (axis.low, value, axis.high))
        return not EDGE_FRACTION < (position - low) / (high - low) < 1 - EDGE_FRACTION
    numbers = [candidate for candidate in axis if is_number(candidate)]
    return len(numbers) > 1 and value in (min(numbers), max(numbers))


def describe_axis(axis: list[Any] | Range) -> str:
    """Return e.g. "its grid [0.001, 0.01]" or "its range 0.0001 to 0.1"."""
    if isinstance(axis, Range):
        return f"its range {format_rounded(axis.low)} to {format_rounded(axis.high)}"
    return f"its grid [{', '.join(format_rounded(value) for value in axis)}]"


def describe_unequal_budgets(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a warning if arms were tuned with different numbers of cells."""
    if not experiment.tune or len({row.cells_tried for row in arms}) < 2:
        return []
    budgets = ", ".join(f"{row.title} {row.cells_tried}" for row in arms)
    return [f"The arms were tuned with different budgets. Finished tuning cells: {budgets}."]


def describe_decreasing_loss(arms: Sequence[Row]) -> list[str]:
    """Return a warning if the training loss was still decreasing at the end of training."""
    decreases = {row.title: median_loss_decrease(row) for row in arms}
    return [
        f"{title}: the training loss was still decreasing, by {100 * decrease:.0f} % over the last tenth of the steps. "
        "With more steps the arm may perform better."
        for title, decrease in decreases.items()
        if decrease > MIN_LOSS_DECREASE
    ]


def median_loss_decrease(row: Row) -> float:
    """Return the median relative decrease of the loss at the end of training; 0 if the arm solves the task."""
    if any(summary.solved and summary.solved[0] == summary.solved[1] for summary in row.summaries.values()):
        return 0.0
    decreases = [late_decrease(read_curve_end(record.folder, "train/loss")) for record in row.finished_records]
    return statistics.median([decrease for decrease in decreases if decrease is not None] or [0.0])


def describe_untrained_lengths(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a warning if the test has longer sequences than training."""
    max_lengths = []
    for arm, row in zip(experiment.arms, arms, strict=True):
        task = experiment.make_cell(arm, row.point or next(iter_points(experiment.tune)), experiment.seeds[0]).task
        if "train_length" in task and "test_length" in task:
            max_lengths.append((max(task["test_length"]), max(task["train_length"])))
    longer = dict.fromkeys(f"up to {test}, training up to {train}" for test, train in max_lengths if test > train)
    return [f"Test sequences are longer than training sequences: {'; '.join(longer)}."] if longer else []


def describe_mixed_code(records: Sequence[CellRecord]) -> list[str]:
    """Return a warning if finished cells were trained with different versions of the code."""
    done = [record for record in records if record.state == "done"]
    names = dict.fromkeys(name for record in done for name in record.code)
    warnings = []
    for name in names:
        versions = Counter(record.code[name] for record in done if name in record.code)
        if len(versions) > 1:
            cells = " and ".join(str(count) for _, count in versions.most_common())
            warnings.append(
                f"The finished cells were trained with {len(versions)} versions of "
                f"{'hqlt_lab' if name == 'lab' else name} ({cells} cells). `hqlt run --again` trains cells again, "
                "`hqlt forget` marks old results as superseded."
            )
    return warnings


def describe_changed_code(records: Sequence[CellRecord]) -> list[str]:
    """Return a warning if the code has changed since finished cells were trained."""
    arms = dict.fromkeys(record.arm.name for record in records if record.changed)
    names = dict.fromkeys(name for record in records for name in record.changed)
    if not names:
        return []
    count = sum(bool(record.changed) for record in records)
    cells = f"{pluralize_count(count, 'finished cell')} {'was' if count == 1 else 'were'}"
    sources = join_names(["hqlt_lab" if name == "lab" else name for name in names], 6)
    command = f"`hqlt run FILE --again --only {shlex.quote(format_filters('arm', arms))}`"
    return [f"The code of {sources} changed after {cells} trained. Train again with {command}."]


def describe_failed_analyses(records: Sequence[CellRecord]) -> list[str]:
    """Return one warning for each analysis that failed in finished cells; their test results are not affected."""
    cells_by_warning: dict[str, int] = {}
    for record in records:
        for warning in record.warnings if record.state == "done" else ():
            cells_by_warning[warning] = cells_by_warning.get(warning, 0) + 1
    return [
        f"{pluralize_count(count, 'finished cell')}: {shorten(warning, MAX_REASON_LENGTH, placeholder=' ...')}"
        for warning, count in cells_by_warning.items()
    ]


def describe_unfinished_cells(records: Sequence[CellRecord]) -> list[str]:
    """Return warnings about cells without a result, one sentence per state."""
    descriptions: dict[CellState, str] = {
        "failed": "failed",
        "diverged": "diverged",
        "pruned": "ended early",
        "running": "still running",
        "waiting": "still waiting",
    }
    cells_by_state = {state: [record for record in records if record.state == state] for state in descriptions}
    return [
        f"{pluralize_count(len(cells), 'cell')} {descriptions[state]}{first_failure_reason(cells)}."
        for state, cells in cells_by_state.items()
        if cells
    ]


def first_failure_reason(cells: Sequence[CellRecord]) -> str:
    """Return the reason of the first cell that has one, e.g. "; delta, seed 1: CUDA out of memory"; else empty."""
    for record in cells:
        if record.why.strip():
            reason = shorten(record.why, MAX_REASON_LENGTH, placeholder=" ...").rstrip(".")
            return f"; {record.arm}, seed {record.seed}: {reason}"
    return ""
