"""Softmax under a schedule: the cheap forms are the dense one."""

from itertools import pairwise

import pytest
import torch

from hqlt_lab.ops import attention
from hqlt_lab.ops.attention import attend, attend_dense
from hqlt_lab.ops.flops import counted
from hqlt_lab.ops.schedule import Schedule

SCHEDULES = [
    Schedule(),
    Schedule(window=1),
    Schedule(window=5),
    Schedule(window=40),
    Schedule(block=5),
    Schedule(block=40),
    Schedule(window=3, block=8),
    Schedule(window=12, block=8),
]


def example(queries, keys, batch=2):
    shapes = ((batch, 3, queries, 4), (batch, 3, keys, 4), (batch, 3, keys, 5))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("past", [0, 1, 50])
@pytest.mark.parametrize("length", [1, 33, 100])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_cheap_form_is_the_dense_one(schedule, length, past):
    q, k, v = example(length, past + length)
    fast, slow = attend(q, k, v, schedule), attend_dense(q, k, v, schedule)
    torch.testing.assert_close(fast, slow)
    for one, other in zip(
        torch.autograd.grad(fast.square().sum(), (q, k, v)),
        torch.autograd.grad(slow.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_rows_may_have_seen_different_numbers_of_tokens(schedule):
    q, k, v = example(60, 110)
    count = torch.tensor([50, 13])  # the second row's first 37 places in the cache are empty
    together = attend(q, k, v, schedule, count[:, None] + torch.arange(60))
    alone = attend(q[1:], k[1:, :, 37:], v[1:, :, 37:], schedule)
    torch.testing.assert_close(together[1:], alone)


@pytest.mark.parametrize("past", [0, 50])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_document_sees_nothing_before_its_first_token(schedule, past):
    q, k, v = example(100, past + 100, batch=1)
    cuts = [0, 20, 21, 23, 60, 93, 100]
    place = torch.cat([torch.arange(b - a) for a, b in pairwise(cuts)])[None]
    place[:, :20] += past
    together = attend(q, k, v, schedule, place)
    torch.testing.assert_close(together, attend_dense(q, k, v, schedule, place))
    for a, b in pairwise(cuts):
        first = past + a if a else 0  # the first document began in the cache
        alone = attend(q[:, :, a:b], k[:, :, first : past + b], v[:, :, first : past + b], schedule)
        torch.testing.assert_close(together[:, :, a:b], alone)


def test_dense_attention_is_the_formula():
    q, k, v = example(7, 7)
    sees = Schedule(window=3).softmax_sees(7)
    scores = (q @ k.mT / 2).masked_fill(~sees, -torch.inf)
    torch.testing.assert_close(attend_dense(q, k, v, Schedule(window=3)), scores.softmax(-1) @ v)


def test_large_scores_do_not_overflow_in_half_precision():
    q, k, v = (40 * torch.randn(1, 1, 200, 64).half() for _ in range(3))
    assert attend(q, k, v, Schedule(window=8)).isfinite().all()


def test_a_window_costs_what_it_sees():
    """No matrix of queries times keys is ever made for a window."""
    q, k, v = example(1024, 1024)
    found = counted(lambda: attend(q, k, v, Schedule(window=16)))
    assert found == 2 * 2 * 3 * 1024 * (attention.BAND + 15) * (q.shape[3] + v.shape[3])


@pytest.mark.parametrize("schedule", [schedule for schedule in SCHEDULES if schedule.span], ids=str)
def test_bands_that_are_computed_all_at_once_are_the_same(schedule):
    """The form of other devices and of half precision."""
    q, k, v = example(100, 150)
    slow = attend_dense(q, k, v, schedule)
    fast = attention._attend_bands(q, k, v, schedule, None)
    torch.testing.assert_close(fast, slow)


def test_few_bands_at_a_time_are_all_of_them(monkeypatch):
    q, k, v = example(500, 520)
    whole = attend(q, k, v, Schedule(window=7))
    monkeypatch.setattr("hqlt_lab.ops.windowed.CACHED", 1)
    one_by_one = attend(q, k, v, Schedule(window=7))
    torch.testing.assert_close(one_by_one, whole)
    grads = [torch.autograd.grad(answer.square().sum(), (q, k, v)) for answer in (one_by_one, whole)]
    torch.testing.assert_close(*grads)
