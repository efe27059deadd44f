"""The random numbers look random wherever a task could notice that they are not."""

import numpy as np
import pytest
from scipy.stats import chi2

from hqlt_lab.tasks._counter import Draws, mix

MANY = 1 << 16
UNLIKELY = 1e-6  # every test here is of one fixed sample


def surprise(observed):
    """The chance that even numbers are as uneven as these counts."""
    expected = observed.sum() / observed.size
    return chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1)


@pytest.fixture
def draws():
    return Draws("stream", 0, MANY)


@pytest.mark.parametrize("choices", [2, 3, 5, 10, 120])
def test_integers_are_uniform(draws, choices):
    numbers = draws.integers("number", 7, 6 + choices, 2)
    assert numbers.min() == 7 and numbers.max() == 6 + choices
    assert surprise(np.bincount(numbers.ravel() - 7, minlength=choices)) > UNLIKELY


@pytest.mark.parametrize("choices", [2, 5, 16])
def test_neighbouring_draws_and_examples_know_nothing_of_each_other(draws, choices):
    numbers = draws.integers("number", 0, choices - 1, 8)
    for one, other in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:]), (numbers[:-64], numbers[64:])):
        pairs = np.bincount((choices * one + other).ravel(), minlength=choices**2)
        # the pairs of neighbours overlap, which makes their counts a little more even than chi-square expects
        assert surprise(pairs) > UNLIKELY


def test_streams_with_neighbouring_keys_are_uncorrelated():
    streams = [Draws(f"Parity/{split}/{seed}", 0, MANY) for split in ("train", "test") for seed in (0, 1, 2)]
    bits = np.stack([stream.integers("bit", 0, 1)[:, 0] for stream in streams]) - 0.5
    correlation = np.corrcoef(bits) - np.eye(len(streams))
    assert np.abs(correlation).max() < 5 / np.sqrt(MANY)


def test_what_is_drawn_separates_numbers(draws):
    bits = [draws.integers(what, 0, 1)[:, 0] for what in ("size", "bit")]
    assert abs(np.corrcoef(bits)[0, 1]) < 5 / np.sqrt(MANY)


def test_every_bit_of_a_word_is_fair_and_turned_by_every_bit_that_goes_in(draws):
    words = draws.words("number")[:, 0]
    for bit in range(64):
        turned = mix(words) ^ mix(words ^ np.uint64(1 << bit))
        share = np.unpackbits(turned.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
        assert np.abs(share - 0.5).max() < 0.02
    assert np.abs(np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(0) - 0.5).max() < 0.01


def test_prefix_parities_are_fair_for_every_length():
    """What parity, the task, would notice: a sum over many draws that leans to one side."""
    bits = Draws("stream", 0, 8192).integers("bit", 0, 1, 256)
    assert np.abs((bits.cumsum(1) % 2).mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(8192)


def test_fractions_are_uniform_and_never_0_or_1(draws):
    fractions = draws.fractions("fraction", 2)
    assert fractions.min() > 0 and fractions.max() < 1
    assert surprise(np.histogram(fractions, 32, (0, 1))[0]) > UNLIKELY


def test_orders_are_all_permutations_alike(draws):
    orders = draws.orders("order", 4)
    found, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(found) == 24 and surprise(counts) > UNLIKELY


def test_distinct_numbers_are_all_arrangements_alike(draws):
    found, counts = np.unique(draws.distinct("number", 3, 7, 3), axis=0, return_counts=True)
    assert all(len(set(row)) == 3 for row in found.tolist())
    assert len(found) == 5 * 4 * 3 and surprise(counts) > UNLIKELY


def test_distinct_numbers_keep_to_the_limits_of_their_row(draws):
    high = draws.integers("high", 2, 9)
    numbers = draws.distinct("number", 0, high, 3)
    assert numbers.min() == 0 and (numbers <= high).all() and (numbers == high).any()
    assert all(len(set(row)) == 3 for row in numbers[:500].tolist())


def test_a_slice_and_a_wider_draw_hold_the_same_numbers(draws):
    whole = draws.words("number", 9)
    assert np.array_equal(Draws("stream", 100, 50).words("number", 5), whole[100:150, :5])


def test_far_examples_are_as_good_as_near_ones():
    far = Draws("stream", 10**12, MANY).integers("number", 0, 4)
    assert surprise(np.bincount(far[:, 0])) > UNLIKELY
