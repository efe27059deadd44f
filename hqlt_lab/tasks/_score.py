"""Counting what is right, in numbers that can be summed over batches and devices."""

from collections.abc import Mapping

from torch import Tensor

from hqlt_lab.tasks._lengths import Bucket, bucket_name


def tally(logits: Tensor, labels: Tensor, lengths: Tensor, among: list[Bucket]) -> dict[str, Tensor]:
    """Right answers and scored tokens, in all and per bucket; the names are the same for every batch."""
    scored = labels >= 0
    correct = (logits.argmax(-1) == labels) & scored
    totals = {"correct": correct.sum(), "scored": scored.sum()}
    for low, high in among:
        inside = ((lengths >= low) & (lengths <= high))[:, None]
        totals[f"correct/{bucket_name((low, high))}"] = (correct & inside).sum()
        totals[f"scored/{bucket_name((low, high))}"] = (scored & inside).sum()
    return totals


def percent(totals: Mapping[str, Tensor | int], chance: float) -> dict[str, float]:
    """Accuracies; normalised, guessing is 0 and knowing 100.  Buckets in which nothing was scored are left out."""
    accuracy = {
        key.replace("scored", "accuracy"): 100 * float(totals[key.replace("scored", "correct")]) / float(scored)
        for key, scored in totals.items()
        if key.startswith("scored") and scored > 0
    }
    if "accuracy" in accuracy:
        accuracy["normalised_accuracy"] = (accuracy["accuracy"] - chance) / (100 - chance) * 100
    return accuracy
