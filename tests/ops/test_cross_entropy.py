"""Cross-entropy in chunks is torch's own, in a fraction of its memory."""

from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from hqlt_lab.ops import cross_entropy as module
from hqlt_lab.ops.cross_entropy import cross_entropy, in_chunks
from hqlt_lab.ops.flops import Counter, counted


def example(rows=37, width=5, vocabulary=11, dtype=torch.float64, unlabelled=(0, 7, 36)):
    x, weight = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((rows, width), (vocabulary, width)))
    labels = torch.randint(vocabulary, (rows,))
    labels[list(unlabelled)] = -1
    return x, weight, labels


def naive(x, weight, labels):
    return F.cross_entropy(F.linear(x, weight), labels, ignore_index=-1, reduction="none")


@pytest.fixture(params=[1, 8, 10**6], ids=["a row at a time", "eight rows", "all rows"])
def rows_at_a_time(request, monkeypatch):
    monkeypatch.setitem(module.CHUNK, "cpu", 11 * request.param)


@pytest.mark.parametrize("unlabelled", [(), (0, 7, 36), range(37)], ids=["all labels", "some", "none"])
def test_losses_and_gradients_are_those_of_torch(rows_at_a_time, unlabelled):
    x, weight, labels = example(unlabelled=unlabelled)
    ours, truth = cross_entropy(x, weight, labels), naive(x, weight, labels)
    torch.testing.assert_close(ours, truth)
    assert not ours[labels < 0].any() and (ours[labels >= 0] > 0).all()
    given = torch.randn_like(truth)
    grads = (torch.autograd.grad(each, (x, weight), given) for each in (ours, truth))
    torch.testing.assert_close(*grads)


def test_large_logits_do_not_overflow():
    x, weight, labels = example()
    torch.testing.assert_close(cross_entropy(1e4 * x, weight, labels), naive(1e4 * x, weight, labels))


@pytest.mark.parametrize("frozen", [0, 1], ids=["x", "weight"])
def test_what_needs_no_gradient_gets_none_and_costs_none(rows_at_a_time, frozen):
    x, weight, _ = inputs = example()
    inputs[frozen].requires_grad_(False)
    with Counter() as counter:
        cross_entropy(*inputs).sum().backward()
    assert inputs[frozen].grad is None and counter.total == 2 * 2 * x.numel() * len(weight)
    expected = torch.autograd.grad(naive(*inputs).sum(), inputs[1 - frozen])
    torch.testing.assert_close(inputs[1 - frozen].grad, *expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_products_are_rounded_and_sums_are_not(rows_at_a_time, dtype):
    x, weight, labels = example(rows=2000, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        ours = cross_entropy(x, weight, labels)
        logits = F.linear(x, weight)
    assert logits.dtype == dtype and ours.dtype == torch.float32
    torch.testing.assert_close(ours, F.cross_entropy(logits.float(), labels, ignore_index=-1, reduction="none"))
    grads = torch.autograd.grad(ours.sum(), (x, weight))
    truth = torch.autograd.grad(naive(x, weight, labels).sum(), (x, weight))
    assert [grad.dtype for grad in grads] == [torch.float32] * 2
    torch.testing.assert_close(grads, truth, rtol=0.05, atol=0.1)
    assert (grads[1] - truth[1]).norm() < 0.005 * truth[1].norm()  # sums of 2,000 rounded numbers would be further off


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward derivatives use it
def test_forward_mode_takes_the_plain_way():
    x, weight, labels = example()
    way = torch.randn_like(x)
    _, ours = torch.func.jvp(lambda u: cross_entropy(u, weight, labels), (x,), (way,))
    _, truth = torch.func.jvp(lambda u: naive(u, weight, labels), (x,), (way,))
    torch.testing.assert_close(ours, truth)


def test_it_is_what_torch_expects_of_an_operator():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(in_chunks, (*example(), 4), test_utils=checks)


def test_torch_counts_the_products_that_it_stands_for():
    inputs = example()
    assert counted(lambda: cross_entropy(*inputs)) == 2 * 37 * 5 * 11


def peak(work, inputs):
    """The most bytes that were ever taken for a loss and its gradients, by torch's own count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        torch.autograd.grad(work(*inputs).sum(), inputs[:2])
    events = watched.profiler.kineto_results.events()
    taken = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(number for _, number in taken))


def test_a_vocabulary_of_32k_takes_a_quarter_of_the_memory_at_most():
    inputs = example(rows=2048, width=8, vocabulary=2**15, dtype=torch.float32)
    ours, theirs, chunk = peak(cross_entropy, inputs), peak(naive, inputs), 4 * module.CHUNK["cpu"]
    assert theirs >= 2 * 4 * 2048 * 2**15  # logits and their gradient, or something was not counted
    assert chunk <= ours <= 1.25 * chunk and ours <= theirs / 4
