"""The order of training windows is a permutation, and a fair one."""

import numpy as np
import pytest

from hqlt_lab.data.order import shuffled


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 97, 100, 1000, 65_537])
@pytest.mark.parametrize("epoch", [0, 1, 1000])
def test_every_window_comes_once_in_an_epoch(count, epoch):
    order = shuffled(epoch * count, count, count, seed=3)
    assert np.array_equal(np.sort(order), np.arange(count))


def test_a_large_order_needs_no_table():
    count = 10**12 + 39
    some = shuffled(count - 1000, 1000, count, seed=0)
    assert len(set(some.tolist())) == 1000 and some.min() >= 0 and some.max() < count
    assert abs(some.mean() / count - 0.5) < 0.05


@pytest.mark.parametrize("count", [3, 7, 12])
def test_every_place_is_equally_likely(count):
    epochs = 6000
    orders = shuffled(0, epochs * count, count, seed=1).reshape(epochs, count)
    seen = np.stack([np.bincount(column, minlength=count) for column in orders.T])
    assert abs(seen - epochs / count).max() < 5 * np.sqrt(epochs / count)


def test_neighbours_are_torn_apart():
    count = 10_000
    order = shuffled(0, count, count, seed=2)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.05
    assert np.count_nonzero(abs(np.diff(order)) == 1) < 20


def test_seeds_and_epochs_have_orders_of_their_own():
    first = [shuffled(100 * epoch, 100, 100, seed).tobytes() for seed in range(5) for epoch in range(5)]
    assert len(set(first)) == 25


def test_no_window_stands_where_another_seed_or_epoch_puts_it_more_often_than_by_chance():
    count = 5000
    orders = [shuffled(count * epoch, count, count, seed) for seed in range(3) for epoch in range(3)]
    same = [np.count_nonzero(one == other) for i, one in enumerate(orders) for other in orders[:i]]
    assert max(same) < 10  # a random pair agrees at one place, on average
