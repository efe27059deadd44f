"""The fast scan is the slow one, and stays right where floating point is hard."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.chunked import chunked
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.steps import Course, Gates, each, joined

GATES = {
    "add": (),
    "fade": ("log_keep",),
    "delta": ("erase", "write"),
    "gated delta": ("log_keep", "erase", "write"),
    "erase and write apart": ("erase",),
}


def example(tokens, writes=1, gates=("log_keep", "erase", "write"), dtype=torch.float64, batch=2, heads=3, size=5):
    q = torch.randn(batch, heads, tokens, size, dtype=dtype)
    k = F.normalize(torch.randn(batch, heads, tokens * writes, size, dtype=dtype), dim=-1)
    v = torch.randn(batch, heads, tokens * writes, size + 1, dtype=dtype)
    strength = torch.rand(3, batch, heads, tokens * writes, dtype=dtype)
    made = Gates(log_keep=-strength[0], erase=2 * strength[1], write=strength[2])
    return q, k, v, Gates(**{name: getattr(made, name) for name in gates})


def with_gradients(scan, q, k, v, gates, state, **words):
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v, *filter_none(gates), state)]
    rest = iter(leaves[3:-1])
    reads, last = scan(*leaves[:3], each(lambda _: next(rest), gates), leaves[-1], **words)
    weight = torch.linspace(-1, 1, reads.numel(), dtype=reads.dtype).view_as(reads)
    loss = (reads * weight).sum() + last.square().sum()
    return [reads, last, *torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)]


def filter_none(gates):
    return [gate for gate in gates if gate is not None]


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 1, 4, 19])
@pytest.mark.parametrize("tokens", [1, 7, 16, 37])
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_chunked_is_recurrent_in_values_and_gradients(gates, tokens, hold, writes):
    q, k, v, made = example(tokens, writes, gates)
    state, real = torch.randn(2, 3, 5, 6, dtype=torch.float64), torch.rand(2, tokens) > 0.2
    for chunk in (1, 6, 64):
        fast = with_gradients(
            lambda *a, chunk=chunk, **w: chunked(*a, chunk=chunk, **w), q, k, v, made, state, course=Course(hold, real)
        )
        slow = with_gradients(recurrent, q, k, v, made, state, course=Course(hold, real))
        for one, other in zip(fast, slow, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 4, 19])
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_documents_that_begin_inside_a_chunk_find_an_empty_memory(gates, hold, writes):
    tokens = 41
    q, k, v, made = example(tokens, writes, gates)
    state, real = torch.randn(2, 3, 5, 6, dtype=torch.float64), torch.rand(2, tokens) > 0.2
    starts = (torch.rand(2, tokens) < 0.3) & (torch.arange(tokens) % (hold or 1) == 0)
    words = {"course": Course(hold, real, starts)}
    slow = with_gradients(recurrent, q, k, v, made, state, **words)
    for chunk in (1, 6, 64):
        fast = with_gradients(lambda *a, c=chunk, **w: chunked(*a, chunk=c, **w), q, k, v, made, state, **words)
        for one, other in zip(fast, slow, strict=True):
            torch.testing.assert_close(one, other)


def test_hold_reads_the_state_before_the_stretch():
    q, k, v, gates = example(12)
    plain, _ = recurrent(q, k, v, gates)
    states = [torch.zeros(2, 3, 5, 6, dtype=torch.float64)]
    for n in range(3):
        piece = slice(4 * n, 4 * n + 4)
        states.append(
            recurrent(*(x[:, :, piece] for x in (q, k, v)), each(lambda g, p=piece: g[:, :, p], gates), states[-1])[1]
        )
    held, last = chunked(q, k, v, gates, course=Course(hold=4))
    torch.testing.assert_close(held, torch.cat([q[:, :, 4 * n : 4 * n + 4] @ states[n] for n in range(3)], 2))
    torch.testing.assert_close(last, states[-1])
    assert not torch.allclose(held, plain)


def test_a_hold_can_be_served_by_any_plain_scan():
    """Interleave each stretch's reads, as steps that do nothing, before its writes."""
    q, k, v, gates = example(12)
    order = [(kind, t) for n in range(3) for kind in "rw" for t in range(4 * n, 4 * n + 4)]
    at = torch.tensor([t for _, t in order])
    writing = torch.tensor([kind == "w" for kind, _ in order])
    quiet = each(lambda gate: gate[:, :, at] * writing, gates)
    reads, _ = chunked(q[:, :, at], k[:, :, at], v[:, :, at], quiet)
    torch.testing.assert_close(reads[:, :, ~writing], chunked(q, k, v, gates, course=Course(hold=4))[0])


@pytest.mark.parametrize("log_keep", [-46.0, -1e4, -torch.inf, -1e-9])
def test_keeps_near_zero_over_long_chunks_stay_exact(log_keep):
    q, k, v, gates = example(300, gates=("erase", "write"))
    fade = torch.where(torch.rand(2, 3, 300) < 0.2, log_keep, -1e-3).double()
    gates = gates._replace(log_keep=fade)
    want, state = recurrent(q, k, v, gates)
    reads, last = chunked(*(x.float() for x in (q, k, v)), each(torch.Tensor.float, gates), chunk=256)
    torch.testing.assert_close(reads.double(), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last.double(), state, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("different_keys", [1, 2])
def test_repeated_keys_with_beta_two_do_not_overflow(different_keys):
    """Parity itself: the state flips its sign at every step."""
    q, k, v, _ = example(256, gates=())
    k = k[:, :, torch.arange(256) % different_keys]
    two = torch.full((2, 3, 256), 2.0, dtype=torch.float64)
    want, _ = recurrent(q, k, v, Gates(erase=two, write=two))
    reads, _ = chunked(*(x.float() for x in (q, k, v)), Gates(erase=two.float(), write=two.float()), chunk=256)
    torch.testing.assert_close(reads.double(), want, rtol=1e-3, atol=1e-3 * want.abs().max().item())


def test_zero_keys_change_nothing_but_the_fading():
    q, k, v, gates = example(70, gates=("erase", "write"))
    state = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    reads, last = chunked(q, torch.zeros_like(k), v, gates, state)
    torch.testing.assert_close(last, state)
    torch.testing.assert_close(reads, q @ state)


def test_bfloat16_inputs_keep_a_float32_state():
    q, k, v, gates = example(90, dtype=torch.float32)
    want, state = recurrent(*(x.bfloat16().float() for x in (q, k, v)), each(lambda g: g.bfloat16().float(), gates))
    half = [x.bfloat16() for x in (q, k, v)]
    for scan in (chunked, recurrent):
        reads, last = scan(*half, each(torch.Tensor.bfloat16, gates))
        assert reads.dtype == torch.bfloat16 and last.dtype == torch.float32
        torch.testing.assert_close(last, state, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(reads.float(), want, rtol=1e-2, atol=1e-2)


def test_autocast_does_not_lower_the_precision_of_the_memory():
    q, k, v, gates = example(90, dtype=torch.float32)
    plain = chunked(q, k, v, gates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = chunked(q, k, v, gates)
    for one, other in zip(inside, plain, strict=True):
        assert torch.equal(one, other)


def test_no_steps_are_lost_between_two_calls():
    q, k, v, gates = example(33)
    whole, last = chunked(q, k, v, gates)
    first, state = chunked(*(x[:, :, :10] for x in (q, k, v)), each(lambda g: g[:, :, :10], gates))
    second, state = chunked(*(x[:, :, 10:] for x in (q, k, v)), each(lambda g: g[:, :, 10:], gates), state)
    torch.testing.assert_close(torch.cat([first, second], 2), whole)
    torch.testing.assert_close(state, last)


def test_what_erases_and_writes_stays_one_on_its_way():
    """Twice the same numbers would be computed twice."""
    beta, log_keep = torch.rand(2, 3, 5), -torch.rand(2, 3, 5)
    gates = Gates(log_keep, beta, beta)
    for made in (each(torch.clone, gates), joined(gates, gates)):
        assert made.erase is made.write and made.log_keep is not made.erase
    assert torch.equal(joined(gates, gates).erase, torch.cat([beta, beta], 2))
