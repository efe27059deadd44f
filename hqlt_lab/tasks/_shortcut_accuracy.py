"""Accuracies of shortcuts that do not solve a task, such as guessing the most frequent of some values."""

from collections.abc import Mapping
from math import comb


def normalize_accuracies(accuracies: Mapping[str, float], chance_level: float) -> dict[str, dict[str, float]]:
    """Return accuracies by name, and the same normalized so that chance is 0, as `shortcut_scores` needs them."""
    normalized = {name: (value - chance_level) / (100 - chance_level) * 100 for name, value in accuracies.items()}
    return {"accuracy": dict(accuracies), "normalized_accuracy": normalized}


def expected_top_share(draws: int, values: int) -> float:
    """Return the expected share of the most frequent value among uniform draws from a number of values.

    Guessing the most frequent value has this accuracy.  The number of sequences in which no value occurs more than m
    times is draws! times a coefficient of (sum over i <= m of x^i / i!)^values.
    """
    total, expected = values**draws, 0.0
    for max_count in range(draws):
        # probability that the most frequent value occurs more than `most` times
        expected += 1 - count_bounded_sequences(draws, values, max_count) / total
    return expected / draws


def count_bounded_sequences(draws: int, values: int, max_count: int) -> int:
    """Return the number of sequences in which none of the values occurs more than `most` times."""
    counts = [1] + [0] * draws  # number of sequences of each length with the values so far
    for _ in range(values):
        counts = [
            sum(comb(length, count) * counts[length - count] for count in range(min(max_count, length) + 1))
            for length in range(draws + 1)
        ]
    return counts[draws]
