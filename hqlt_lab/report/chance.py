"""What chance alone would do, counted out instead of approximated.

sign_flips    if arm and baseline are the same, each difference may as well have the other sign
fisher        if they solve a task equally often, the solved seeds fall on either by chance
"""

from collections.abc import Sequence

# 2 of 2^n choices of signs are as extreme as all equal ones: below 6 seeds that is never less than 0.05
FEWEST = 6
EXACT_TO = 16  # seeds; beyond, the signs are drawn
DRAWS = 99_999


def sign_flips(differences: Sequence[float]) -> float | None:
    """The two-sided p of the mean under every choice of signs; None where none could be below 0.05."""
    if len(differences) < FEWEST:
        return None
    import numpy as np
    from scipy.stats import permutation_test

    draws = 2 ** len(differences) if len(differences) <= EXACT_TO else DRAWS
    found = permutation_test(
        (list(differences),), np.mean, permutation_type="samples", vectorized=True, n_resamples=draws, batch=4096, rng=0
    )
    return float(found.pvalue)


def fisher(arm: tuple[int, int], baseline: tuple[int, int]) -> float:
    """Fisher's exact p of two solved fractions, each (how many, of how many)."""
    from scipy.stats import fisher_exact

    (a, n), (b, m) = arm, baseline
    return float(fisher_exact([[a, n - a], [b, m - b]]).pvalue)
