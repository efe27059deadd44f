"""Notes below the results table: what its numbers mean, how points were selected, and how arms were matched in size."""

from collections.abc import Sequence

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_seeds import MIN_SEEDS
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.experiment.size_matching import format_percent, match_arm
from hqlt_lab.formatting import join_numbers, pluralize_count
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.lm_eval_protocol_filter import protocol_notes
from hqlt_lab.report.value_formatting import format_rounded
from hqlt_lab.report.wording.noise_floor import noise_floor_notes
from hqlt_lab.report.wording.verdicts import SEEDS_ADVICE, SEEDS_ADVICE_WITH_LOOKS
from hqlt_lab.stats.exact_tests import MIN_SIGN_FLIP_SEEDS
from hqlt_lab.stats.intervals import ALPHA, MIN_BOOTSTRAP_SEEDS
from hqlt_lab.stats.sequential_testing import spend_alpha


def matching_notes(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Return a note on size matching: the reference arm, the solved setting and the largest residual; else empty."""
    points = {row.title: row.point for row in rows if not row.is_quoted and row.point is not None}
    arm_matches = [match_arm(experiment, arm, points[arm.title]) for arm in experiment.arms if arm.title in points]
    matches = [match for match in arm_matches if match is not None]
    if not matches:
        return []
    references = dict.fromkeys(match.to for match in matches)
    reference = repr(next(iter(references))) if len(references) == 1 else "the first arm with the same crossed sizes"
    largest = max((match.residual for match in matches), key=abs)
    return [
        f"Arms are matched on {matches[0].on} to {reference} by {matches[0].by}: "
        f"largest residual {format_percent(largest)}.",
    ]


def compose_notes(experiment: Experiment, rows: Sequence[Row], has_p_columns: bool = True) -> list[str]:
    """Return all notes: direction of metrics, threshold, intervals, tuning, lm-eval protocols and size matching.

    `has_p_columns`: the table has columns of p-values, which notes explain.
    """
    measure = experiment.measure
    larger = [metric for metric in reported_metrics(measure) if measure.metric_direction(metric) == "maximize"]
    smaller = [metric for metric in reported_metrics(measure) if metric not in larger]
    notes = [
        f"{', '.join(names)}: {direction} is better."
        for names, direction in ((larger, "larger"), (smaller, "smaller"))
        if names
    ]
    if measure.solved is not None:
        bound = "at least" if reported_metrics(measure)[0] in larger else "at most"
        notes.append(f"solved: seeds with {reported_metrics(measure)[0]} of {bound} {format_rounded(measure.solved)}.")
    notes += steps_notes(rows)
    notes += seed_notes(rows, measure, has_p_columns, has_looks=bool(experiment.looks))
    notes += looks_notes(experiment, rows)
    notes += noise_floor_notes(rows, measure.primary_metric)
    budgets = {(row.points_tried, row.cells_tried) for row in rows if not row.is_quoted}
    if experiment.tune and len(budgets) == 1:
        points, cells = budgets.pop()
        budget = f"{pluralize_count(points, 'point')} ({pluralize_count(cells, 'cell')}) per arm"
        notes.append(f"{', '.join(experiment.tune)} selected by the {measure.statistic} of {measure.select}: {budget}.")
    notes += protocol_notes([record for row in rows for record in row.records], reported_metrics(measure))
    return notes + matching_notes(experiment, rows)


def steps_notes(rows: Sequence[Row]) -> list[str]:
    """Return a note on the number of training steps, if it is the same for all finished seeds."""
    steps = {step for row in rows for step in row.step_range or ()}
    return [f"All seeds were trained for {pluralize_count(steps.pop(), 'step')}."] if len(steps) == 1 else []


def looks_notes(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Return notes on the looks after which verdicts were computed; empty if the number of seeds is fixed."""
    metric, looks = experiment.measure.primary_metric, experiment.looks
    differences = [row.differences[metric] for row in rows if metric in row.differences]
    if not looks or not differences:
        return []
    num_looks = max(difference.look or 0 for difference in differences)
    if not num_looks:
        return [f"Looks: verdicts are computed after {join_numbers(looks)} seeds, none so far."]
    spent_alpha = sum(spend_alpha(look) for look in range(1, num_looks + 1))
    return [
        f"Looks: verdicts by {metric} were computed after {join_numbers(looks[:num_looks])} seeds (look {num_looks} of "
        f"{len(looks)}). A decided comparison has the verdict and the interval of the look that decided it, an "
        f"open one those of the last look. Intervals are corrected for all looks: the probability of any false verdict "
        f"is at most {100 * ALPHA:.0f} %, of which these looks have used {100 * spent_alpha:.2g} %."
    ]


def seed_notes(rows: Sequence[Row], measure: MeasureConfig, has_p_columns: bool, has_looks: bool = False) -> list[str]:
    """Return notes on how intervals and verdicts were computed."""
    summaries = [summary for row in rows for summary in row.summaries.values()]
    differences = [difference for row in rows for difference in row.differences.values() if difference.n > 1]
    notes = []
    if any(summary.interval_over == "examples" for summary in summaries):
        notes.append(
            "With one seed, the interval is over the test examples; it does not show the variation between seeds."
        )
    if measure.interval == "bootstrap" and any(summary.n >= MIN_BOOTSTRAP_SEEDS for summary in summaries):
        notes.append(f"mean: bootstrap intervals (BCa) from {MIN_BOOTSTRAP_SEEDS} seeds on.")
    if differences:
        margin = f" and the difference is at least {format_rounded(measure.margin)}" if measure.margin else ""
        equivalent = (
            f" equivalent: the interval lies within ±{format_rounded(measure.margin)}." if measure.margin else ""
        )
        notes.append(
            "paired difference: mean difference from the baseline, paired by seed, with its Holm-corrected 95 % CI "
            f"(Student's t). significantly better or worse: the interval excludes 0{margin}, with at least {MIN_SEEDS} "
            f"seeds.{equivalent}"
        )
        if has_p_columns and not has_looks:
            notes.append(f"p (permutation): exact sign-flip test, from {MIN_SIGN_FLIP_SEEDS} seeds on.")
    if has_p_columns and any(difference.fisher is not None for difference in differences):
        notes.append("p (Fisher, solved): Fisher's exact test of the solved fractions.")
    if any(difference.two_groups is not None for difference in differences):
        notes.append(
            "The values form two groups, such as solved and not solved: a significant difference also requires "
            "Fisher's exact test of the groups."
        )
    if measure.margin and (measure.solved is not None or any(d.two_groups is not None for d in differences)):
        notes.append(
            "Seeds solve the task or do not: equivalence also requires an exact test of the seeds that only one of the "
            "two arms solves."
        )
    if any(difference.seeds_needed for difference in differences):
        notes.append(SEEDS_ADVICE_WITH_LOOKS if has_looks else SEEDS_ADVICE)
    return notes
