"""Accuracy by example size: validation of size ranges, size buckets, and counts of correct labels per example.

Bucket limits double from the smallest test size on; all smaller sizes form one bucket.  The counts can be summed over
batches and devices.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hqlt_lab.errors import ConfigIssue

if TYPE_CHECKING:
    from torch import Tensor

Bucket = tuple[int, int]


def check_length_ranges(ranges: Mapping[str, Sequence[int] | None], min_size: int) -> list[ConfigIssue]:
    """Return an issue for each option that is not a range or begins below the smallest size."""
    issues = []
    for option, sizes in ranges.items():
        if sizes is not None and len(sizes) != 2:
            message = f"the shortest and the longest size are needed, such as [3, 40]; got {list(sizes)}."
            issues.append(ConfigIssue(option, "not_a_size_range", message))
        elif sizes is not None and sizes[0] > sizes[1]:
            message, hint = "the shortest size comes first.", f"Use [{sizes[1]}, {sizes[0]}]."
            issues.append(ConfigIssue(option, "sizes_in_wrong_order", message, hint))
        elif sizes is not None and sizes[0] < min_size:
            message = f"with these options the sizes of the task start at {min_size}, got {sizes[0]}."
            issues.append(ConfigIssue(option, "size_too_small", message))
    return issues


def length_buckets(length_ranges: Mapping[str, tuple[int, int]]) -> list[Bucket]:
    """Return the smallest and largest size of each bucket, e.g. 3-39, 40-79, 80-159, 160-256."""
    shortest = min(low for low, _ in length_ranges.values())
    longest = max(high for _, high in length_ranges.values())
    starts = [length_ranges["test"][0]]
    while starts[-1] * 2 < longest:
        starts.append(starts[-1] * 2)
    starts = [shortest, *starts] if shortest < starts[0] else starts
    return list(zip(starts, [start - 1 for start in starts[1:]] + [longest], strict=True))


def bucket_name(bucket: Bucket) -> str:
    """Return the name of a bucket in metrics: length_40_79, or length_64 for a single size."""
    low, high = bucket
    return f"length_{low}" if low == high else f"length_{low}_{high}"


def geometric_range(maximum: int, first: int = 1) -> list[int]:
    """Return first, 2 * first, 4 * first, ... up to `maximum`."""
    values = [first]
    while values[-1] * 2 <= maximum:
        values.append(values[-1] * 2)
    return values


def count_correct(
    predictions: "Tensor", labels: "Tensor", lengths: "Tensor", buckets: list[Bucket]
) -> "dict[str, Tensor]":
    """Count correct and scored tokens per example, in total and per bucket.  The keys are the same for every batch."""
    labeled = labels >= 0
    correct, scored = ((predictions == labels) & labeled).sum(1), labeled.sum(1)  # [B]
    counts = {"correct": correct, "scored": scored}
    for low, high in buckets:
        in_bucket = (lengths >= low) & (lengths <= high)
        counts[f"correct/{bucket_name((low, high))}"] = correct * in_bucket
        counts[f"scored/{bucket_name((low, high))}"] = scored * in_bucket
    return counts


def compute_accuracies(totals: Mapping[str, float], chance_level: float) -> dict[str, float]:
    """Compute accuracies in percent, and one normalized so that chance is 0.  Omits buckets without scored tokens."""
    accuracy = {
        key.replace("scored", "accuracy"): 100 * totals[key.replace("scored", "correct")] / scored
        for key, scored in totals.items()
        if key.startswith("scored") and scored > 0
    }
    if "accuracy" in accuracy:
        accuracy["normalized_accuracy"] = (accuracy["accuracy"] - chance_level) / (100 - chance_level) * 100
    return accuracy


def count_exact(
    predictions: "Tensor", labels: "Tensor", positions: Sequence[int], offset: int = 0
) -> "dict[str, Tensor]":
    """Count examples without a mistake, in total and up to each of these positions, which count from 1 + offset."""
    import torch

    is_mistake = (predictions != labels) & (labels >= 0)  # [B, T]
    counts = {"examples": torch.ones_like(labels[:, 0]), "exact": (~is_mistake.any(1)).long()}
    return counts | {f"exact/up_to_{end}": (~is_mistake[:, : end + offset].any(1)).long() for end in positions}


def compute_exact_shares(totals: Mapping[str, float]) -> dict[str, float]:
    """Compute the share of examples without a mistake in percent, in total, by position and by slice."""
    return {
        name.replace("exact", "sequence_accuracy"): 100 * exact / num_examples
        for name, exact in totals.items()
        if name.partition("/")[0] == "exact"
        and (num_examples := totals.get(name.replace("exact", "examples"), totals["examples"])) > 0
    }
