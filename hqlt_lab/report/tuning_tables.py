"""Tables on tuned lists of numbers: the window of each arm, and the score of every value."""

from collections.abc import Sequence

from hqlt_lab.experiment.apply_overrides import short_path
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.build_tables import CellTexts, Table
from hqlt_lab.report.stats.tuning_windows import TunedValue, TuningWindow
from hqlt_lab.report.value_formatting import format_rounded
from hqlt_lab.report.wording.tuning_notes import (
    format_factor,
    format_lost_cells,
    format_window,
    is_solved_criterion,
    score_notes,
    window_notes,
)


def build_window_table(experiment: Experiment, rows: Sequence[Row]) -> Table | None:
    """Build the table of tuning windows, one line per arm and tuned list; None while no cell has ended."""
    measure = experiment.measure
    pairs = [(row, window) for row in rows if row.point is not None for window in row.tuning_windows]
    if not pairs:
        return None
    windows = [window for _, window in pairs]
    bounds = ["" if window.bound is None else format_rounded(window.bound, window.metric) for window in windows]
    columns: dict[str, CellTexts] = {
        "arm": [row.title for row, _ in pairs],
        "tuned": [short_path(window.path, experiment.tune) for window in windows],
        "chosen": ["" if window.chosen is None else format_rounded(window.chosen) for window in windows],
        "score needed": [] if is_solved_criterion(windows, measure) else bounds,
        "window": [format_window(window) for window in windows],
        "factor": [format_factor(window) for window in windows],
        "seeds": [str(row.num_tuning_seeds) for row, _ in pairs],
    }
    return make_table(columns, window_notes(windows, measure))


def build_score_table(experiment: Experiment, rows: Sequence[Row]) -> Table | None:
    """Build the table of scores, one line per arm and value of each tuned list; None while no cell has ended."""
    tuned_rows = [row for row in rows if row.point is not None]
    entries = [(row, window, value) for row in tuned_rows for window in row.tuning_windows for value in window.values]
    if not entries:
        return None
    select, values = experiment.measure.select, [value for _, _, value in entries]
    columns: dict[str, CellTexts] = {
        "arm": [row.title for row, _, _ in entries],
        "value": [f"{short_path(window.path, experiment.tune)}={format_rounded(v.value)}" for _, window, v in entries],
        "score": [format_score(value, select) for value in values],
        "lowest to highest": [format_extremes(value, select) for value in values],
        "solved": ["{} of {}".format(*value.solved) if value.solved else "" for value in values],
        "unfinished": [format_lost_cells(value) for value in values],
        "works": [format_works(window, value) for _, window, value in entries],
    }
    return make_table(columns, score_notes(experiment.measure))


def make_table(columns: dict[str, CellTexts], notes: list[str]) -> Table:
    """Return a table without its empty columns."""
    non_empty = {name: cells for name, cells in columns.items() if any(cells)}
    return Table(list(non_empty), [list(cells) for cells in zip(*non_empty.values(), strict=True)], notes)


def format_score(value: TunedValue, metric: str) -> str:
    """Return the score of a value; a dash if lost seeds decide it, empty if no seed has ended."""
    if value.score is None:
        return "–" if value.lost_counts else ""
    return format_rounded(value.score, metric)


def format_extremes(value: TunedValue, metric: str) -> str:
    """Return e.g. "12.0 to 99.5"; empty with fewer than two results."""
    results = value.values_by_seed.values()
    if len(results) < 2:
        return ""
    return f"{format_rounded(min(results), metric)} to {format_rounded(max(results), metric)}"


def format_works(window: TuningWindow, value: TunedValue) -> str:
    """Return whether the arm works with a value; empty while cells are missing."""
    return "" if not window.is_complete else "yes" if value.works else "no"
