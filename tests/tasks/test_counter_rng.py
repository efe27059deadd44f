"""The counter-based random numbers pass statistical tests of the properties that tasks rely on."""

import numpy as np
import pytest
from scipy.stats import chi2

from hqlt_lab.tasks._counter_rng import CounterRng, mix_bits

NUM_EXAMPLES = 1 << 16
MIN_P_VALUE = 1e-6  # the samples are fixed, so a passing test cannot fail later


def uniform_p_value(observed):
    """Return the p-value of a chi-square test that the counts are uniform."""
    expected = observed.sum() / observed.size
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1)


@pytest.fixture
def rng():
    return CounterRng("stream", 0, NUM_EXAMPLES)


@pytest.mark.parametrize("choices", [2, 3, 5, 10, 120])
def test_integers_are_uniform(rng, choices):
    numbers = rng.integers("number", 7, 6 + choices, 2)
    assert numbers.min() == 7 and numbers.max() == 6 + choices
    assert uniform_p_value(np.bincount(numbers.ravel() - 7, minlength=choices)) > MIN_P_VALUE


@pytest.mark.parametrize("choices", [2, 5, 16])
def test_neighboring_draws_and_examples_are_independent(rng, choices):
    numbers = rng.integers("number", 0, choices - 1, 8)
    for a, b in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:]), (numbers[:-64], numbers[64:])):
        pairs = np.bincount((choices * a + b).ravel(), minlength=choices**2)
        # neighboring pairs overlap, which makes their counts slightly more even than the chi-square test assumes
        assert uniform_p_value(pairs) > MIN_P_VALUE


def test_streams_with_similar_names_are_uncorrelated():
    streams = [
        CounterRng(f"Parity/{split}/{seed}", 0, NUM_EXAMPLES) for split in ("train", "test") for seed in (0, 1, 2)
    ]
    bits = np.stack([stream.integers("bit", 0, 1)[:, 0] for stream in streams]) - 0.5
    correlation = np.corrcoef(bits) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / np.sqrt(NUM_EXAMPLES)


def test_draws_with_different_names_are_uncorrelated(rng):
    bits = [rng.integers(name, 0, 1)[:, 0] for name in ("size", "bit")]
    assert abs(np.corrcoef(bits)[0, 1]) < 5 / np.sqrt(NUM_EXAMPLES)


def test_every_output_bit_is_fair_and_flipped_by_every_input_bit(rng):
    words = rng.random_bits("number")[:, 0]
    for bit in range(64):
        flipped = mix_bits(words) ^ mix_bits(words ^ np.uint64(1 << bit))
        share = np.unpackbits(flipped.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
        assert np.abs(share - 0.5).max() < 0.02
    assert np.abs(np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(0) - 0.5).max() < 0.01


def test_prefix_parities_are_fair_for_every_length():
    """The parity task would be affected by a bias in sums over many draws."""
    bits = CounterRng("stream", 0, 8192).integers("bit", 0, 1, 256)
    assert np.abs((bits.cumsum(1) % 2).mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(8192)


def test_floats_are_uniform_and_never_0_or_1(rng):
    fractions = rng.uniform("fraction", 2)
    assert fractions.min() > 0 and fractions.max() < 1
    assert uniform_p_value(np.histogram(fractions, 32, (0, 1))[0]) > MIN_P_VALUE


def test_all_permutations_are_equally_likely(rng):
    orders = rng.permutations("order", 4)
    distinct, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(distinct) == 24 and uniform_p_value(counts) > MIN_P_VALUE


def test_all_arrangements_of_distinct_integers_are_equally_likely(rng):
    rows, counts = np.unique(rng.distinct_integers("number", 3, 7, 3), axis=0, return_counts=True)
    assert all(len(set(row)) == 3 for row in rows.tolist())
    assert len(rows) == 5 * 4 * 3 and uniform_p_value(counts) > MIN_P_VALUE


def test_distinct_integers_respect_the_limits_of_their_row(rng):
    high = rng.integers("high", 2, 9)
    numbers = rng.distinct_integers("number", 0, high, 3)
    assert numbers.min() == 0 and (numbers <= high).all() and (numbers == high).any()
    assert all(len(set(row)) == 3 for row in numbers[:500].tolist())


def test_slice_and_narrower_draw_give_the_same_numbers(rng):
    bits = rng.random_bits("number", 9)
    assert np.array_equal(CounterRng("stream", 100, 50).random_bits("number", 5), bits[100:150, :5])


def test_large_example_numbers_give_uniform_integers():
    far = CounterRng("stream", 10**12, NUM_EXAMPLES).integers("number", 0, 4)
    assert uniform_p_value(np.bincount(far[:, 0])) > MIN_P_VALUE
