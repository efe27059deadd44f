"""Softmax attention under a schedule: the cheap forms equal the dense one."""

from itertools import pairwise

import pytest
import torch

from hqlt_lab.ops.attention import scheduled_softmax
from hqlt_lab.ops.attention.scheduled_softmax import attend, attend_dense
from hqlt_lab.ops.flops import measure_flops
from hqlt_lab.ops.memory_schedule import Schedule

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


def make_qkv(queries, keys, batch=2):
    shapes = ((batch, 3, queries, 4), (batch, 3, keys, 4), (batch, 3, keys, 5))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("past", [0, 1, 50])
@pytest.mark.parametrize("length", [1, 33, 100])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_cheapest_form_equals_dense_attention(schedule, length, past):
    q, k, v = make_qkv(length, past + length)
    actual, expected = attend(q, k, v, schedule), attend_dense(q, k, v, schedule)
    torch.testing.assert_close(actual, expected)
    for actual_grad, expected_grad in zip(
        torch.autograd.grad(actual.square().sum(), (q, k, v)),
        torch.autograd.grad(expected.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(actual_grad, expected_grad)


@pytest.mark.parametrize("window", [64, 100])  # 64 is the default window
def test_a_long_window_in_a_longer_sequence_equals_dense_attention(window):
    q, k, v = make_qkv(400, 450, batch=1)
    schedule = Schedule(window=window)
    assert scheduled_softmax.select_form(schedule, 400, 450) == "bands"
    expected = attend_dense(q, k, v, schedule)
    expected_grads = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for form in (attend(q, k, v, schedule), scheduled_softmax._attend_bands(q, k, v, schedule, None)):
        torch.testing.assert_close(form, expected)
        torch.testing.assert_close(torch.autograd.grad(form.square().sum(), (q, k, v)), expected_grads)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_rows_may_have_caches_of_different_lengths(schedule):
    q, k, v = make_qkv(60, 110)
    count = torch.tensor([50, 13])  # the first 37 cache slots of the second row are empty
    batched = attend(q, k, v, schedule, count[:, None] + torch.arange(60))
    separate = attend(q[1:], k[1:, :, 37:], v[1:, :, 37:], schedule)
    torch.testing.assert_close(batched[1:], separate)


@pytest.mark.parametrize("past", [0, 50])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_document_sees_nothing_before_its_first_token(schedule, past):
    q, k, v = make_qkv(100, past + 100, batch=1)
    boundaries = [0, 20, 21, 23, 60, 93, 100]
    position = torch.cat([torch.arange(b - a) for a, b in pairwise(boundaries)])[None]
    position[:, :20] += past
    batched = attend(q, k, v, schedule, position)
    torch.testing.assert_close(batched, attend_dense(q, k, v, schedule, position))
    for a, b in pairwise(boundaries):
        first = past + a if a else 0  # the first document began in the cache
        separate = attend(q[:, :, a:b], k[:, :, first : past + b], v[:, :, first : past + b], schedule)
        torch.testing.assert_close(batched[:, :, a:b], separate)


def test_dense_attention_equals_its_formula():
    q, k, v = make_qkv(7, 7)
    visible = Schedule(window=3).softmax_mask(7)
    scores = (q @ k.mT / 2).masked_fill(~visible, -torch.inf)
    torch.testing.assert_close(attend_dense(q, k, v, Schedule(window=3)), scores.softmax(-1) @ v)


def test_large_scores_do_not_overflow_in_half_precision():
    q, k, v = (40 * torch.randn(1, 1, 200, 64).half() for _ in range(3))
    assert attend(q, k, v, Schedule(window=8)).isfinite().all()


def test_flops_of_a_window_are_linear_in_the_length():
    """No matrix of queries times keys is computed for a window."""
    q, k, v = make_qkv(1024, 1024)
    flops = measure_flops(lambda: attend(q, k, v, Schedule(window=16)))
    assert flops == 2 * 2 * 3 * 1024 * (scheduled_softmax.MIN_BAND_WIDTH + 15) * (q.shape[3] + v.shape[3])


@pytest.mark.parametrize("schedule", [schedule for schedule in SCHEDULES if schedule.attention_span], ids=str)
def test_bands_computed_all_at_once_equal_dense_attention(schedule):
    """The form used on other devices and in half precision."""
    q, k, v = make_qkv(100, 150)
    expected = attend_dense(q, k, v, schedule)
    actual = scheduled_softmax._attend_bands(q, k, v, schedule, None)
    torch.testing.assert_close(actual, expected)


def test_bands_computed_one_at_a_time_equal_all_at_once(monkeypatch):
    q, k, v = make_qkv(500, 520)
    all_at_once = attend(q, k, v, Schedule(window=7))
    monkeypatch.setattr("hqlt_lab.ops.attention.sliding_window_cpu.CACHE_SCORES", 1)
    one_at_a_time = attend(q, k, v, Schedule(window=7))
    torch.testing.assert_close(one_at_a_time, all_at_once)
    grads = [torch.autograd.grad(output.square().sum(), (q, k, v)) for output in (one_at_a_time, all_at_once)]
    torch.testing.assert_close(*grads)
