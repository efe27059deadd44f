"""Sentences on the steps to solve: how they are measured, and which arms solve the task first."""

from collections.abc import Mapping, Sequence

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.stats.solve_times import SolveTimes
from hqlt_lab.report.value_formatting import format_arm_title, format_range, format_rounded, join_names

MAX_ARMS_DESCRIBED = 6


def format_median(times: SolveTimes) -> str:
    """Return the median with its interval, e.g. "400 [200, > 600]"."""
    end = f"> {times.last_step}"
    median = end if times.median is None else str(times.median)
    if times.interval is None:
        return median
    high = end if times.interval.high is None else times.interval.high
    return f"{median} [{times.interval.low}, {high}]"


def describe_solved_step(times: Sequence[SolveTimes], measure: MeasureConfig) -> str:
    """Return the sentence that defines the step at which a seed solves the task."""
    bound = "at least" if measure.metric_direction(measure.primary_metric) == "maximize" else "at most"
    every = sorted({each.valid_every for each in times})
    return (
        f"A seed solves the task at the first validation at which {measure.validation_metric} is {bound} "
        f"{format_rounded(measure.solved)}. Training is validated every {format_range(every[0], every[-1])} steps, so "
        "the task may be solved up to that many steps earlier. The column solved of the results counts test results."
    )


def solve_time_notes(times: Sequence[SolveTimes], measure: MeasureConfig) -> list[str]:
    """Return the notes below the table of steps to solve."""
    notes = [
        describe_solved_step(times, measure),
        "median steps: Kaplan-Meier estimate over seeds. A seed that does not solve the task is censored at its last "
        "step of training; if it diverged, failed or was pruned, at the planned last step.",
    ]
    if any(each.interval is not None for each in times):
        notes.append(
            "interval: exact binomial interval of the median. Its confidence is at least 95 % from 6 seeds on; with "
            "fewer seeds it is the range from the fastest to the slowest seed."
        )
    if any(each.interval is None and each.median is not None and len(each.by_seed) > 1 for each in times):
        notes.append(
            "The interval is unknown for an arm of which a seed was observed for fewer steps than others needed."
        )
    return notes


def describe_medians(times_by_arm: Mapping[ArmTitle, SolveTimes]) -> str:
    """Return sentences on the fastest arm, and on those of which half of the seeds do not solve the task."""
    medians = {title: times.median for title, times in times_by_arm.items() if times.median is not None}
    sentences = []
    if medians:
        fastest = min(medians.values())
        names = [format_arm_title(title) for title, median in medians.items() if median == fastest]
        verb = "solves" if len(names) == 1 else "solve"
        sentences.append(
            f"{join_names(names, MAX_ARMS_DESCRIBED)} {verb} the task first: half of the seeds within "
            f"{pluralize_count(fastest, 'step')}."
        )
    slow = [format_arm_title(title) for title in times_by_arm if title not in medians]
    if slow:
        sentences.append(f"More than half of the seeds do not solve it: {join_names(slow, MAX_ARMS_DESCRIBED)}.")
    return " ".join(sentences)
