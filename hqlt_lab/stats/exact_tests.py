"""Exact tests of the difference between an arm and its baseline.

sign_flip_p_value    permutation test: under the null hypothesis each paired difference may have either sign
two_sample_p_value   permutation test: under the null hypothesis two samples may be exchanged, seed by seed
fisher_p_value       Fisher's exact test: under the null hypothesis both solve the task equally often
discordance_p_value  binomial test of the fraction of seeds that only one of two arms solves
"""

from collections.abc import Sequence
from functools import cache

# the smallest possible p is 2 / 2^n, which is below 0.05 from 6 seeds on
MIN_SIGN_FLIP_SEEDS = 6
MAX_EXACT_SEEDS = 16  # with more seeds, signs are sampled instead of enumerated
NUM_PERMUTATIONS = 99_999
NUM_SAMPLED_DIVISIONS = 9_999


def sign_flip_p_value(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of the mean over all choices of signs; None with too few seeds for p < 0.05."""
    if len(differences) < MIN_SIGN_FLIP_SEEDS:
        return None
    import numpy as np
    from scipy.stats import permutation_test

    num_resamples = 2 ** len(differences) if len(differences) <= MAX_EXACT_SEEDS else NUM_PERMUTATIONS
    result = permutation_test(
        (list(differences),),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=num_resamples,
        batch=4096,
        rng=0,
    )
    return float(result.pvalue)


def two_sample_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p of the difference of means over all divisions of the values into two such samples.

    For values that are 0 or 1 it is close to Fisher's test.
    """
    import numpy as np
    from scipy.stats import permutation_test

    result = permutation_test(
        (list(first), list(second)),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        vectorized=True,
        n_resamples=NUM_SAMPLED_DIVISIONS,  # exact if there are fewer divisions, which holds up to 7 seeds
        rng=0,
    )
    return float(result.pvalue)


@cache  # scipy takes milliseconds, and a table has few different fractions
def fisher_p_value(arm: tuple[int, int], baseline: tuple[int, int]) -> float:
    """Return the p of Fisher's exact test for two solved fractions, each given as (solved, total)."""
    from scipy.stats import fisher_exact

    (a, n), (b, m) = arm, baseline
    return float(fisher_exact([[a, n - a], [b, m - b]]).pvalue)


def discordance_p_value(count: int, total: int, probability: float) -> float:
    """Return p of the binomial test that a seed is discordant, that only one arm solves it, with this probability.

    `count` of `total` seeds are discordant. The difference of two solved fractions is at most the fraction of
    discordant seeds.
    """
    from scipy.special import bdtr

    return 1.0 if probability <= 0 else 0.0 if probability >= 1 else float(bdtr(count, total, probability))
