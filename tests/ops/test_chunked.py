"""The chunk-parallel scan equals the recurrent one, and is accurate where floating-point arithmetic is difficult."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.gates import Gates, ScanContext, concat_gates, map_gates
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.ops.scan.recurrent import recurrent_scan

GATES = {
    "add": (),
    "decay": ("log_keep",),
    "delta": ("erase", "write"),
    "gated delta": ("log_keep", "erase", "write"),
    "erase and write differ": ("erase",),
}


def make_inputs(tokens, writes=1, gates=("log_keep", "erase", "write"), dtype=torch.float64, batch=2, heads=3, size=5):
    q = torch.randn(batch, heads, tokens, size, dtype=dtype)
    k = F.normalize(torch.randn(batch, heads, tokens * writes, size, dtype=dtype), dim=-1)
    v = torch.randn(batch, heads, tokens * writes, size + 1, dtype=dtype)
    strength = torch.rand(3, batch, heads, tokens * writes, dtype=dtype)
    all_gates = Gates(log_keep=-strength[0], erase=2 * strength[1], write=strength[2])
    return q, k, v, Gates(**{name: getattr(all_gates, name) for name in gates})


def run_with_gradients(scan, q, k, v, gates, state, **options):
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v, *filter_none(gates), state)]
    gate_leaves = iter(leaves[3:-1])
    reads, last = scan(*leaves[:3], map_gates(lambda _: next(gate_leaves), gates), leaves[-1], **options)
    weight = torch.linspace(-1, 1, reads.numel(), dtype=reads.dtype).view_as(reads)
    loss = (reads * weight).sum() + last.square().sum()
    return [reads, last, *torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)]


def filter_none(gates):
    return [gate for gate in gates if gate is not None]


def assert_chunked_equals_recurrent(inputs, state, context):
    expected = run_with_gradients(recurrent_scan, *inputs, state, context=context)
    for chunk_size in (1, 6, 64):
        actual = run_with_gradients(chunked_scan, *inputs, state, context=context, chunk_size=chunk_size)
        for actual_tensor, expected_tensor in zip(actual, expected, strict=True):
            torch.testing.assert_close(actual_tensor, expected_tensor)


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 1, 4, 19])
@pytest.mark.parametrize("tokens", [1, 7, 16, 37])
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_chunked_scan_equals_recurrent_scan_in_values_and_gradients(gates, tokens, hold, writes):
    inputs = make_inputs(tokens, writes, gates)
    state, valid_mask = torch.randn(2, 3, 5, 6, dtype=torch.float64), torch.rand(2, tokens) > 0.2
    assert_chunked_equals_recurrent(inputs, state, ScanContext(hold, valid_mask))


@pytest.mark.parametrize("writes", [1, 3])
@pytest.mark.parametrize("hold", [None, 4, 19])
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_document_that_begins_inside_a_chunk_starts_with_an_empty_memory(gates, hold, writes):
    tokens = 41
    inputs = make_inputs(tokens, writes, gates)
    state, valid_mask = torch.randn(2, 3, 5, 6, dtype=torch.float64), torch.rand(2, tokens) > 0.2
    doc_start = (torch.rand(2, tokens) < 0.3) & (torch.arange(tokens) % (hold or 1) == 0)
    assert_chunked_equals_recurrent(inputs, state, ScanContext(hold, valid_mask, doc_start))


def test_hold_reads_the_state_from_before_the_hold_block():
    q, k, v, gates = make_inputs(12)
    plain, _ = recurrent_scan(q, k, v, gates)
    states = [torch.zeros(2, 3, 5, 6, dtype=torch.float64)]
    for n in range(3):
        block = slice(4 * n, 4 * n + 4)
        block_gates = map_gates(lambda gate, block=block: gate[:, :, block], gates)
        states.append(recurrent_scan(*(x[:, :, block] for x in (q, k, v)), block_gates, states[-1])[1])
    held, last = chunked_scan(q, k, v, gates, context=ScanContext(hold=4))
    torch.testing.assert_close(held, torch.cat([q[:, :, 4 * n : 4 * n + 4] @ states[n] for n in range(3)], 2))
    torch.testing.assert_close(last, states[-1])
    assert not torch.allclose(held, plain)


def test_hold_equals_a_plain_scan_with_the_reads_of_each_block_first():
    """The reads of a hold block are inserted, as steps that write nothing, before its writes."""
    q, k, v, gates = make_inputs(12)
    order = [(kind, t) for n in range(3) for kind in "rw" for t in range(4 * n, 4 * n + 4)]
    token = torch.tensor([t for _, t in order])
    is_write = torch.tensor([kind == "w" for kind, _ in order])
    step_gates = map_gates(lambda gate: gate[:, :, token] * is_write, gates)
    reads, _ = chunked_scan(q[:, :, token], k[:, :, token], v[:, :, token], step_gates)
    torch.testing.assert_close(reads[:, :, ~is_write], chunked_scan(q, k, v, gates, context=ScanContext(hold=4))[0])


@pytest.mark.parametrize("log_keep", [-46.0, -1e4, -torch.inf, -1e-9])
def test_keep_gates_near_zero_are_accurate_over_long_chunks(log_keep):
    q, k, v, gates = make_inputs(300, gates=("erase", "write"))
    log_keeps = torch.where(torch.rand(2, 3, 300) < 0.2, log_keep, -1e-3).double()
    gates = gates._replace(log_keep=log_keeps)
    expected, state = recurrent_scan(q, k, v, gates)
    reads, last = chunked_scan(*(x.float() for x in (q, k, v)), map_gates(torch.Tensor.float, gates), chunk_size=256)
    torch.testing.assert_close(reads.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last.double(), state, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("context", [ScanContext(), ScanContext(hold=7), ScanContext(hold=50)], ids=str)
@pytest.mark.parametrize("writes", [1, 2])
@pytest.mark.parametrize("log_keep", [-1.0, -5.0, -10.0, -18.0, -50.0])
def test_gradient_of_log_keeps_is_accurate_where_keeps_are_small(log_keep, writes, context):
    """Pairs that have not decayed must not enter with both signs: their rounding would exceed the gradient."""
    q, k, v, gates = make_inputs(75, writes=writes, gates=("erase", "write"), dtype=torch.float32)
    gates = gates._replace(log_keep=log_keep * (0.5 + torch.rand(2, 3, 75 * writes)))
    state = torch.randn(2, 3, 5, 6)
    grads = []
    for scan, dtype in ((recurrent_scan, torch.float64), (chunked_scan, torch.float32)):
        inputs = [x.to(dtype) for x in (q, k, v)], map_gates(lambda gate, d=dtype: gate.to(d), gates), state.to(dtype)
        inputs[1].log_keep.requires_grad_()
        reads, last = scan(*inputs[0], inputs[1], inputs[2], context)
        (reads.sum() + last.sum()).backward()
        grads.append(inputs[1].log_keep.grad.double())
    expected, actual = grads
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-6 * expected.abs().max().item())


@pytest.mark.parametrize("different_keys", [1, 2])
def test_repeated_keys_with_beta_two_do_not_overflow(different_keys):
    """With beta 2 a repeated key changes the sign of the state at every step, as in parity."""
    q, k, v, _ = make_inputs(256, gates=())
    k = k[:, :, torch.arange(256) % different_keys]
    two = torch.full((2, 3, 256), 2.0, dtype=torch.float64)
    expected, _ = recurrent_scan(q, k, v, Gates(erase=two, write=two))
    reads, _ = chunked_scan(
        *(x.float() for x in (q, k, v)), Gates(erase=two.float(), write=two.float()), chunk_size=256
    )
    torch.testing.assert_close(reads.double(), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_zero_keys_do_not_change_the_state():
    q, k, v, gates = make_inputs(70, gates=("erase", "write"))
    state = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    reads, last = chunked_scan(q, torch.zeros_like(k), v, gates, state)
    torch.testing.assert_close(last, state)
    torch.testing.assert_close(reads, q @ state)


def test_bfloat16_inputs_keep_a_float32_state():
    q, k, v, gates = make_inputs(90, dtype=torch.float32)
    expected, state = recurrent_scan(
        *(x.bfloat16().float() for x in (q, k, v)), map_gates(lambda g: g.bfloat16().float(), gates)
    )
    half = [x.bfloat16() for x in (q, k, v)]
    for scan in (chunked_scan, recurrent_scan):
        reads, last = scan(*half, map_gates(torch.Tensor.bfloat16, gates))
        assert reads.dtype == torch.bfloat16 and last.dtype == torch.float32
        torch.testing.assert_close(last, state, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(reads.float(), expected, rtol=1e-2, atol=1e-2)


def test_autocast_does_not_lower_the_precision_of_the_memory():
    q, k, v, gates = make_inputs(90, dtype=torch.float32)
    plain = chunked_scan(q, k, v, gates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = chunked_scan(q, k, v, gates)
    for inside_tensor, plain_tensor in zip(inside, plain, strict=True):
        assert torch.equal(inside_tensor, plain_tensor)


def test_two_calls_give_the_same_result_as_one():
    q, k, v, gates = make_inputs(33)
    reads, last = chunked_scan(q, k, v, gates)
    first, state = chunked_scan(*(x[:, :, :10] for x in (q, k, v)), map_gates(lambda g: g[:, :, :10], gates))
    second, state = chunked_scan(*(x[:, :, 10:] for x in (q, k, v)), map_gates(lambda g: g[:, :, 10:], gates), state)
    torch.testing.assert_close(torch.cat([first, second], 2), reads)
    torch.testing.assert_close(state, last)


def test_tied_gates_stay_one_tensor():
    """Two equal tensors would be computed twice."""
    beta, log_keep = torch.rand(2, 3, 5), -torch.rand(2, 3, 5)
    gates = Gates(log_keep, beta, beta)
    for result in (map_gates(torch.clone, gates), concat_gates(gates, gates)):
        assert result.erase is result.write and result.log_keep is not result.erase
    assert torch.equal(concat_gates(gates, gates).erase, torch.cat([beta, beta], 2))
