"""Noise floor of a study: spread over seeds, the smallest detectable difference, and whether training repeats."""

import statistics
from collections.abc import Sequence

from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row
from hqlt_lab.report.value_formatting import format_arm_title, format_range, format_rounded
from hqlt_lab.stats.intervals import TARGET_POWER


def noise_floor_notes(rows: Sequence[Row], metric: str) -> list[str]:
    """Return notes on the noise of the primary metric; empty without a result."""
    if not any(metric in row.summaries for row in rows):
        return []
    return [*describe_baseline_spread(rows, metric), *describe_detectable(rows, metric), *describe_repeatability(rows)]


def describe_baseline_spread(rows: Sequence[Row], metric: str) -> list[str]:
    """Return a note on the standard deviation over seeds of each baseline; with one arm only, of this arm."""
    titles = {row.differences[metric].baseline for row in rows if metric in row.differences}
    baselines = [row for row in rows if row.title in titles] or [row for row in rows if not row.is_quoted][:1]
    values_by_baseline = [[*row.values_by_seed(metric).values()] for row in baselines]
    deviations = [statistics.stdev(values) for values in values_by_baseline if len(values) > 1]
    if not deviations:
        return [f"Noise floor: the spread of {metric} over seeds is not known with 1 seed."]
    counts = [len(values) for values in values_by_baseline if len(values) > 1]
    seeds = f"{format_range(min(counts), max(counts))} seeds"
    low, high = format_rounded(min(deviations), metric), format_rounded(max(deviations), metric)
    if len(baselines) > 1:
        deviation = low if low == high else f"{low} to {high}"
        return [f"Noise floor: the standard deviation of {metric} of the baselines is {deviation} over {seeds}."]
    values = values_by_baseline[0]
    extremes = f"range {format_rounded(min(values), metric)} to {format_rounded(max(values), metric)}"
    name = format_arm_title(baselines[0].title)
    subject = f"of the baseline {name}" if titles else f"of {name}"
    return [f"Noise floor: the standard deviation of {metric} {subject} is {low} over {seeds}, {extremes}."]


def describe_detectable(rows: Sequence[Row], metric: str) -> list[str]:
    """Return a note on the smallest true difference that a comparison finds; empty if it is not known."""
    differences = [row.differences[metric] for row in rows if metric in row.differences]
    known_differences = [difference for difference in differences if difference.detectable is not None]
    if not known_differences:
        return []
    values = [difference.detectable for difference in known_differences if difference.detectable is not None]
    low, high = format_rounded(min(values), metric), format_rounded(max(values), metric)
    counts = [difference.n for difference in known_differences]
    return [
        f"Smallest detectable difference: {low if low == high else f'{low} to {high}'} with "
        f"{format_range(min(counts), max(counts))} seeds (power {100 * TARGET_POWER:.0f} %, corrected for the number "
        "of comparisons)."
    ]


def describe_repeatability(rows: Sequence[Row]) -> list[str]:
    """Return a note on how many runs computed their first step twice with the same bits."""
    checks = [record.repeatable for row in rows for record in row.finished_records if record.repeatable is not None]
    if not checks:
        return ["Repeatability: not checked (trainer.check_determinism)."]
    return [
        "Repeatability: the first training step, computed twice, was bit-identical in "
        f"{sum(checks)} of {pluralize_count(len(checks), 'run')}."
    ]
