"""Counting what is right, example by example, in numbers that can be summed over batches and devices."""

from collections.abc import Mapping

from torch import Tensor

from hqlt_lab.tasks._lengths import Bucket, bucket_name


def tally(logits: Tensor, labels: Tensor, lengths: Tensor, among: list[Bucket]) -> dict[str, Tensor]:
    """Right answers and scored tokens of each example, in all and per bucket; the names are those of every batch."""
    due = labels >= 0
    correct, scored = ((logits.argmax(-1) == labels) & due).sum(1), due.sum(1)  # [B]
    counts = {"correct": correct, "scored": scored}
    for low, high in among:
        inside = (lengths >= low) & (lengths <= high)
        counts[f"correct/{bucket_name((low, high))}"] = correct * inside
        counts[f"scored/{bucket_name((low, high))}"] = scored * inside
    return counts


def percent(totals: Mapping[str, float], chance: float) -> dict[str, float]:
    """Accuracies; normalised, guessing is 0 and knowing 100.  Buckets in which nothing was scored are left out."""
    accuracy = {
        key.replace("scored", "accuracy"): 100 * totals[key.replace("scored", "correct")] / scored
        for key, scored in totals.items()
        if key.startswith("scored") and scored > 0
    }
    if "accuracy" in accuracy:
        accuracy["normalised_accuracy"] = (accuracy["accuracy"] - chance) / (100 - chance) * 100
    return accuracy
