"""Attach to each row of a report its difference from the baseline, by every reported metric.

Verdicts come from `hqlt_lab.stats.baseline_differences`. Intervals of percentages are clipped to possible values, and
two exact tests are added that have no influence on the verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.stats.baseline_differences import ArmValues, Difference, compare_family, paired_differences
from hqlt_lab.stats.exact_tests import fisher_p_value, sign_flip_p_value
from hqlt_lab.stats.sequential_testing import LookSchedule, compare_at_looks

if TYPE_CHECKING:
    from hqlt_lab.report.arm_rows import Row


def attach_differences(
    rows: Sequence["Row"],
    baselines: Mapping[ArmTitle, ArmTitle],
    measure: MeasureConfig,
    resolution: float = 0.0,
    schedule: LookSchedule | None = None,
) -> list["Row"]:
    """Return the rows with their differences from the baseline for every metric.

    All comparisons of one metric form a family for Holm's correction. `resolution` is how much one test example
    changes an accuracy, in percent. `schedule`: when verdicts are computed, if they decide the number of seeds.
    """
    by_title = {row.title: row for row in rows if not row.is_quoted}
    row_pairs = [(row, by_title[baselines[row.title]]) for row in rows if row.title in baselines and not row.is_quoted]
    differences: dict[str, dict[str, Difference]] = {row.title: {} for row in rows}
    metrics = list_metrics(rows, measure)
    # looks that were taken by the primary metric, which comes first; None: not known yet
    num_looks = None if measure.primary_metric in metrics else 0
    for metric in metrics:
        arm_pairs = [(arm_values(row, metric), arm_values(baseline, metric)) for row, baseline in row_pairs]
        if schedule is None:
            compared = compare_family(arm_pairs, metric, measure, resolution)
        else:
            result = compare_at_looks(arm_pairs, metric, measure, resolution, schedule, num_looks)
            compared, num_looks = result.differences, len(result.counts)
        for (row, baseline), difference in zip(row_pairs, compared, strict=True):
            if difference is not None:
                differences[row.title][metric] = describe_difference(difference, row, baseline, metric)
    return [replace(row, differences=differences[row.title]) for row in rows]


def list_metrics(rows: Sequence["Row"], measure: MeasureConfig) -> list[str]:
    """Return the metrics of the rows, the primary metric first."""
    metrics = dict.fromkeys(metric for row in rows for metric in row.summaries)
    return sorted(metrics, key=lambda metric: metric != measure.primary_metric)


def arm_values(row: "Row", metric: str) -> ArmValues:
    """Return the values of one metric of a row."""
    return ArmValues(
        title=row.title,
        values=row.values_by_seed(metric),
        lost_seeds=frozenset(row.seeds_without_value(metric)),
    )


def describe_difference(difference: Difference, row: "Row", baseline: "Row", metric: str) -> Difference:
    """Return a difference with its interval clipped to possible values, and with exact tests added.

    The exact tests are not corrected for several looks, so a difference with looks has none.
    """
    low, high = difference.low, difference.high
    ranges = [compared.percent_ranges.get(metric) for compared in (row, baseline)]
    if low is not None and high is not None and ranges[0] is not None and ranges[1] is not None:
        low, high = ranges[0].clip_difference((low, high), ranges[1])
    clipped = replace(difference, low=low, high=high)
    if difference.look is not None:
        return clipped
    solved, baseline_solved = (compared.summaries[metric].solved for compared in (row, baseline))
    values = paired_differences(row.values_by_seed(metric), baseline.values_by_seed(metric))
    return replace(
        clipped,
        permutation=sign_flip_p_value(values),
        fisher=fisher_p_value(solved, baseline_solved) if solved and baseline_solved else None,
    )
