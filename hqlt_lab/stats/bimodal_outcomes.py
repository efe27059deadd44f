"""Detect outcomes that are either solved or not, for which a t-test is too optimistic, and test them exactly.

If every seed ends in one of two groups, a few seeds of an arm may end in the same group by chance. Their spread is then
close to 0, and a t-test calls any other arm different. Values of a table form two groups if

    the largest gap between neighboring values is more than half of their range,
    some arm has seeds in both groups, and
    the seed alone does not determine the group.

Without the second condition two arms with different means would form two groups; without the third, a seed that is hard
for every arm. Fisher's test compares how many seeds of two arms are in the upper group. It holds for any probability.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hqlt_lab.stats.exact_tests import fisher_p_value

MIN_GAP_FRACTION = 0.5  # of the range of all values


def find_group_threshold(values_by_arm: Sequence[Mapping[int, float]]) -> float | None:
    """Return a value between the two groups that the values of all arms form; None if they form no two groups.

    Each arm is given as seed -> value.
    """
    values = sorted(value for by_seed in values_by_arm for value in by_seed.values())
    gap, low, high = max(((b - a, a, b) for a, b in pairwise(values)), default=(0.0, 0.0, 0.0))
    if not values or gap <= MIN_GAP_FRACTION * (values[-1] - values[0]):
        return None
    threshold = (low + high) / 2
    is_mixed = any(len({value > threshold for value in by_seed.values()}) == 2 for by_seed in values_by_arm)
    groups_by_seed: dict[int, set[bool]] = {}
    for by_seed in values_by_arm:
        for seed, value in by_seed.items():
            groups_by_seed.setdefault(seed, set()).add(value > threshold)
    depends_on_arm = any(len(groups) == 2 for groups in groups_by_seed.values())
    return threshold if is_mixed and depends_on_arm else None


def group_p_value(arm: Mapping[int, float], baseline: Mapping[int, float], threshold: float) -> float:
    """Return the p of Fisher's test that both arms have equally many seeds above the threshold."""
    arm_count, baseline_count = (sum(value > threshold for value in by_seed.values()) for by_seed in (arm, baseline))
    return fisher_p_value((arm_count, len(arm)), (baseline_count, len(baseline)))
