"""Sentences on tuned values: what a tuning window is, how wide those of the arms are, and caveats on the selection."""

from collections.abc import Sequence

from hqlt_lab.experiment.apply_overrides import short_path
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_seeds import DEFAULT_TUNE_SEEDS
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.stats.tuning_windows import NEAR_BEST, TunedValue, TuningWindow
from hqlt_lab.report.value_formatting import format_arm_title, format_rounded, join_names
from hqlt_lab.stats.metric_scale import is_percentage

MAX_ARMS_DESCRIBED = 6  # in the caption of a figure


def format_window(window: TuningWindow) -> str:
    """Return e.g. "0.001 to 0.01", "0.01", "none", or that cells are missing."""
    if not window.is_complete:
        return "not complete"
    if window.low is None or window.high is None:
        return "none"
    low, high = format_rounded(window.low), format_rounded(window.high)
    return low if window.is_narrow else f"{low} to {high}"


def format_factor(window: TuningWindow) -> str:
    """Return the width of a window as a factor, e.g. "10 to 100" or "at least 10"; empty if it is not known."""
    if window.factor_range is None:
        return ""
    smallest, largest = window.factor_range
    if largest is None:
        return f"at least {format_rounded(smallest)}"
    return f"{format_rounded(smallest)} to {format_rounded(largest)}"


def format_lost_cells(value: TunedValue) -> str:
    """Return e.g. "2 diverged, 1 pruned, 1 waiting"; empty if all cells have a result."""
    return ", ".join(f"{count} {state}" for state, count in value.unfinished_counts.items())


def is_solved_criterion(windows: Sequence[TuningWindow], measure: MeasureConfig) -> bool:
    """Return whether a value works if it reaches `measure.solved`."""
    return measure.solved is not None and any(window.metric == measure.validation_metric for window in windows)


def describe_criterion(windows: Sequence[TuningWindow], measure: MeasureConfig) -> str:
    """Return the sentence that defines when an arm works with a value."""
    if is_solved_criterion(windows, measure):
        bound = "at least" if measure.metric_direction(measure.primary_metric) == "maximize" else "at most"
        return (
            f"A value works if the {measure.statistic} of {measure.validation_metric} over seeds is {bound} "
            f"{format_rounded(measure.solved)} (measure.solved)."
        )
    is_in_percent = is_percentage(measure.select) or "success" in measure.select
    distance = f"{NEAR_BEST:g} points of" if is_in_percent else f"{NEAR_BEST:g} % of"
    return (
        f"A value works if its score is within {distance} the arm's best score. An arm whose scores "
        "are all low may therefore have a wide window."
    )


def window_notes(windows: Sequence[TuningWindow], measure: MeasureConfig) -> list[str]:
    """Return the notes below the table of tuning windows."""
    notes = [
        describe_criterion(windows, measure),
        "window: the neighboring values around the chosen one that all work. factor: its width lies between the ratio "
        'of its largest to its smallest value and the ratio of the two nearest values that do not work. With "at '
        'least" the window reaches an end of the list and may continue beyond.',
    ]
    if len({window.path for window in windows}) > 1:
        notes.append("For each tuned setting, the other tuned settings have their chosen values.")
    return notes


def score_notes(measure: MeasureConfig) -> list[str]:
    """Return the notes below the table of scores."""
    return [
        f"score: {measure.statistic} of {measure.select} over the seeds that select the value, never a test result. A "
        "seed that diverged, failed or was pruned counts as worse than any other; –: such seeds decide the score.",
    ]


def describe_windows(arms: Sequence[Row], path: str) -> str:
    """Return a sentence on the windows of all arms, e.g. "Values of lr that work: a 0.001 to 0.01; b none."."""
    windows = [(row.title, window) for row in arms for window in row.tuning_windows if window.path == path]
    complete = [(title, window) for title, window in windows if window.is_complete]
    name = short_path(path, {path: None})
    if len(complete) > MAX_ARMS_DESCRIBED:
        narrow = sum(window.is_narrow for _, window in complete)
        none = sum(window.low is None for _, window in complete)
        wide = len(complete) - narrow - none
        return (
            f"{wide} of {pluralize_count(len(complete), 'arm')} work with several values of {name}, {narrow} with a "
            f"single one, {none} with none."
        )
    texts = [f"{format_arm_title(title)} {format_window(window)}" for title, window in complete]
    return f"Values of {name} that work: {'; '.join(texts)}." if texts else ""


def describe_narrow_windows(arms: Sequence[Row]) -> list[str]:
    """Return a caveat for each arm that works with a single value of a list."""
    return [
        f"{row.title}: of the values of {window.path} only {format_rounded(window.low)} works"
        f"{describe_neighbors(window)}. The window is narrower than the spacing of the list, so a value in between may "
        "be better."
        for row in arms
        for window in row.tuning_windows
        if window.is_narrow
    ]


def describe_neighbors(window: TuningWindow) -> str:
    """Return the neighbors of a single working value, e.g. ", not its neighbors 0.001 and 0.1"."""
    neighbors = [format_rounded(value) for value in (window.below, window.above) if value is not None]
    return f", not its {'neighbor' if len(neighbors) == 1 else 'neighbors'} {join_names(neighbors, 2)}"


def describe_few_tuning_seeds(experiment: Experiment, arms: Sequence[Row]) -> list[str]:
    """Return a caveat if the values of arms with a result were selected with fewer than DEFAULT_TUNE_SEEDS seeds."""
    if not experiment.tune:
        return []
    names_by_count: dict[int, list[str]] = {}
    for row in arms:
        if row.summaries and row.num_tuning_seeds < DEFAULT_TUNE_SEEDS:
            names_by_count.setdefault(row.num_tuning_seeds, []).append(row.title)
    setting = "tune_seeds" if experiment.has_tuning_cells else "seeds"
    return [
        f"{join_names(names, MAX_ARMS_DESCRIBED)}: {', '.join(experiment.tune)} selected with "
        f"{pluralize_count(count, 'seed')}. With fewer than {DEFAULT_TUNE_SEEDS} seeds ({setting}), the selection is "
        "unreliable."
        for count, names in sorted(names_by_count.items())
    ]
