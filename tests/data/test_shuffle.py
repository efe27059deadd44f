"""The order of training windows is a uniformly distributed permutation."""

import numpy as np
import pytest

from hqlt_lab.data.window_order import shuffle_windows


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 97, 100, 1000, 65_537])
@pytest.mark.parametrize("epoch", [0, 1, 1000])
def test_every_window_occurs_once_per_epoch(count, epoch):
    order = shuffle_windows(epoch * count, count, count, seed=3)
    assert np.array_equal(np.sort(order), np.arange(count))


def test_permutation_of_a_trillion_windows_needs_no_table():
    count = 10**12 + 39
    windows = shuffle_windows(count - 1000, 1000, count, seed=0)
    assert len(set(windows.tolist())) == 1000 and windows.min() >= 0 and windows.max() < count
    assert abs(windows.mean() / count - 0.5) < 0.05


@pytest.mark.parametrize("count", [3, 7, 12])
def test_every_position_is_equally_likely(count):
    epochs = 6000
    orders = shuffle_windows(0, epochs * count, count, seed=1).reshape(epochs, count)
    counts = np.stack([np.bincount(column, minlength=count) for column in orders.T])
    assert abs(counts - epochs / count).max() < 5 * np.sqrt(epochs / count)


def test_neighboring_windows_are_separated():
    count = 10_000
    order = shuffle_windows(0, count, count, seed=2)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.05
    assert np.count_nonzero(abs(np.diff(order)) == 1) < 20


def test_seeds_and_epochs_have_different_orders():
    orders = [shuffle_windows(100 * epoch, 100, 100, seed).tobytes() for seed in range(5) for epoch in range(5)]
    assert len(set(orders)) == 25


def test_orders_of_different_seeds_and_epochs_agree_no_more_than_by_chance():
    count = 5000
    orders = [shuffle_windows(count * epoch, count, count, seed) for seed in range(3) for epoch in range(3)]
    agreements = [np.count_nonzero(a == b) for i, a in enumerate(orders) for b in orders[:i]]
    assert max(agreements) < 10  # two random permutations agree at one position on average
