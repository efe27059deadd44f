"""Floors: what a shortcut answers correctly without solving a task."""

from math import comb


def expected_top_share(draws: int, values: int) -> float:
    """Return the expected share of the most frequent one among `draws` values that are uniform over `values`.

    It is what guessing the most frequent one gets.  The number of sequences in which no value occurs more than m times
    is draws! times a coefficient of (sum over i <= m of x^i / i!)^values.
    """
    total, expected = values**draws, 0.0
    for most in range(draws):
        expected += (
            1 - count_bounded_sequences(draws, values, most) / total
        )  # P(the most frequent one occurs > m times)
    return expected / draws


def count_bounded_sequences(draws: int, values: int, most: int) -> int:
    """Return the number of sequences in which none of the values occurs more than `most` times."""
    counts = [1] + [0] * draws  # number of sequences of each length with the values so far
    for _ in range(values):
        counts = [
            sum(comb(length, used) * counts[length - used] for used in range(min(most, length) + 1))
            for length in range(draws + 1)
        ]
    return counts[draws]
