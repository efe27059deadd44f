"""Chunked cross-entropy equals torch's own, with a fraction of its memory."""

from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from hqlt_lab.ops.flops import FlopCounter, measure_flops
from hqlt_lab.ops.fused import linear_cross_entropy as module
from hqlt_lab.ops.fused.linear_cross_entropy import cross_entropy, cross_entropy_op


def make_inputs(rows=37, width=5, vocabulary=11, dtype=torch.float64, unlabeled=(0, 7, 36)):
    x, weight = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((rows, width), (vocabulary, width)))
    labels = torch.randint(vocabulary, (rows,))
    labels[list(unlabeled)] = -1
    return x, weight, labels


def reference_cross_entropy(x, weight, labels):
    return F.cross_entropy(F.linear(x, weight), labels, ignore_index=-1, reduction="none")


@pytest.fixture(params=[1, 8, 10**6], ids=["one row", "eight rows", "all rows"])
def chunk_rows(request, monkeypatch):
    monkeypatch.setitem(module.LOGITS_PER_CHUNK, "cpu", 11 * request.param)


@pytest.mark.parametrize("unlabeled", [(), (0, 7, 36), range(37)], ids=["all labels", "some", "none"])
def test_losses_and_gradients_equal_those_of_torch(chunk_rows, unlabeled):
    x, weight, labels = make_inputs(unlabeled=unlabeled)
    losses, expected = cross_entropy(x, weight, labels), reference_cross_entropy(x, weight, labels)
    torch.testing.assert_close(losses, expected)
    assert not losses[labels < 0].any() and (losses[labels >= 0] > 0).all()
    grad_losses = torch.randn_like(expected)
    grads = (torch.autograd.grad(each_losses, (x, weight), grad_losses) for each_losses in (losses, expected))
    torch.testing.assert_close(*grads)


def test_large_logits_do_not_overflow():
    x, weight, labels = make_inputs()
    torch.testing.assert_close(cross_entropy(1e4 * x, weight, labels), reference_cross_entropy(1e4 * x, weight, labels))


@pytest.mark.parametrize("frozen", [0, 1], ids=["x", "weight"])
def test_frozen_input_gets_no_gradient_and_costs_no_flops(chunk_rows, frozen):
    x, weight, _ = inputs = make_inputs()
    inputs[frozen].requires_grad_(False)
    with FlopCounter() as counter:
        cross_entropy(*inputs).sum().backward()
    assert inputs[frozen].grad is None and counter.total == 2 * 2 * x.numel() * len(weight)
    expected = torch.autograd.grad(reference_cross_entropy(*inputs).sum(), inputs[1 - frozen])
    torch.testing.assert_close(inputs[1 - frozen].grad, *expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_applies_to_products_but_not_to_sums(chunk_rows, dtype):
    x, weight, labels = make_inputs(rows=2000, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        losses = cross_entropy(x, weight, labels)
        logits = F.linear(x, weight)
    assert logits.dtype == dtype and losses.dtype == torch.float32
    torch.testing.assert_close(losses, F.cross_entropy(logits.float(), labels, ignore_index=-1, reduction="none"))
    grads = torch.autograd.grad(losses.sum(), (x, weight))
    expected = torch.autograd.grad(reference_cross_entropy(x, weight, labels).sum(), (x, weight))
    assert [grad.dtype for grad in grads] == [torch.float32] * 2
    torch.testing.assert_close(grads, expected, rtol=0.05, atol=0.1)
    assert (grads[1] - expected[1]).norm() < 0.005 * expected[
        1
    ].norm()  # a sum of 2,000 rounded numbers would have a larger error


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # used by torch's forward-mode derivatives
def test_forward_mode_derivatives_equal_those_of_torch():
    x, weight, labels = make_inputs()
    tangent = torch.randn_like(x)
    _, losses = torch.func.jvp(lambda u: cross_entropy(u, weight, labels), (x,), (tangent,))
    _, expected = torch.func.jvp(lambda u: reference_cross_entropy(u, weight, labels), (x,), (tangent,))
    torch.testing.assert_close(losses, expected)


def test_operator_passes_opcheck():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(cross_entropy_op, (*make_inputs(), 4), test_utils=checks)


def test_flops_are_those_of_the_linear_map():
    inputs = make_inputs()
    assert measure_flops(lambda: cross_entropy(*inputs)) == 2 * 37 * 5 * 11


def peak_bytes(function, inputs):
    """Return the peak memory of a loss and its gradients, as measured by torch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        torch.autograd.grad(function(*inputs).sum(), inputs[:2])
    events = profiler.profiler.kineto_results.events()
    allocations = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(nbytes for _, nbytes in allocations))


def test_vocabulary_of_32k_takes_at_most_a_quarter_of_the_memory():
    inputs = make_inputs(rows=2048, width=8, vocabulary=2**15, dtype=torch.float32)
    peak, reference_peak, chunk_bytes = (
        peak_bytes(cross_entropy, inputs),
        peak_bytes(reference_cross_entropy, inputs),
        4 * module.LOGITS_PER_CHUNK["cpu"],
    )
    assert reference_peak >= 2 * 4 * 2048 * 2**15  # logits and their gradient, else the measurement is incomplete
    assert chunk_bytes <= peak <= 1.25 * chunk_bytes and peak <= reference_peak / 4
