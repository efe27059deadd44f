"""The scan with a decay per key channel and its own lookup keys equals the step-by-step reference, for any gates."""

import math

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext, map_gates
from hqlt_lab.ops.scan.channel_gate_scan import channel_gate_scan_backward_op, channel_gate_scan_op
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.ops.scan.recurrent import recurrent_scan

B, H, K, V = 2, 2, 12, 10


def make_scan(length, *, lookup="none", decay="mild", writes=1, seed=0):
    """Return q, k, v, gates and a state in float64, with values that float32 can represent."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    steps = length * writes
    q, k = F.normalize(normal(B, H, length, K), dim=-1), F.normalize(normal(B, H, steps, K), dim=-1)
    log_keep = {
        "mild": lambda: -torch.exp(2 * normal(B, H, steps, K) - 4),
        "any": lambda: -torch.exp(uniform(B, H, steps, K) * math.log(1e9) + math.log(1e-6)),  # -1e-6 to -1e3
        "strong": lambda: torch.full((B, H, steps, K), -18.0, dtype=torch.float64),
        "scalar": lambda: -torch.exp(normal(B, H, steps) - 2),
        "none": lambda: None,
    }[decay]()
    beta = 2 * uniform(B, H, steps)
    gates = {
        "none": lambda: Gates(log_keep),
        "key": lambda: Gates(log_keep, beta, beta),
        "channels": lambda: Gates(log_keep, 2 * uniform(B, H, steps, K), uniform(B, H, steps, V)),
        "own": lambda: Gates(log_keep, beta, lookup=F.normalize(normal(B, H, steps, K), dim=-1)),
        "early": lambda: Gates(log_keep, beta, early_lookup=F.normalize(normal(B, H, steps, K), dim=-1)),
        "first": lambda: Gates(log_keep, early_lookup=F.normalize(normal(B, H, length, K), dim=-1)),
    }[lookup]()
    inputs = (q, k, normal(B, H, steps, V), gates, 0.3 * normal(B, H, K, V))
    return round_to_float32(inputs)


def round_to_float32(inputs):
    q, k, v, gates, state = inputs
    return (
        q.float().double(),
        k.float().double(),
        v.float().double(),
        map_gates(to_float32, gates),
        state.float().double(),
    )


def to_float32(x):
    return x.float().double()


def run(scan, inputs, context, dtype):
    """Return reads, state and the gradients of all inputs by name, in float64."""
    leaves = {}

    def leaf(name, x):
        leaves[name] = x.detach().to(dtype).requires_grad_()
        return leaves[name]

    q, k, v, gates, state = inputs
    gates = Gates(**{name: leaf(name, gate) for name, gate in gates._asdict().items() if gate is not None})
    arguments = leaf("q", q), leaf("k", k), leaf("v", v), gates, leaf("initial state", state)
    reads, last_state = scan(*arguments, context)
    loss = sum(
        (x * torch.randn(x.shape, generator=torch.Generator().manual_seed(7))).sum() for x in (reads, last_state)
    )
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    return {name: x.detach().double() for name, x in ({"reads": reads, "state": last_state} | grads).items()}


def relative_errors(inputs, context=DEFAULT_CONTEXT, dtype=torch.float32, expected=None):
    if expected is None:
        expected = run(recurrent_scan, inputs, context, torch.float64)
    actual = run(chunked_scan, inputs, context, dtype)
    return {
        name: ((actual[name] - x).abs().max() / x.abs().max().clamp(min=1e-30)).item() for name, x in expected.items()
    }


def doc_starts(length, hold=None):
    starts = torch.rand(B, length, generator=torch.Generator().manual_seed(3)) < 0.1
    return starts & (torch.arange(length) % (hold or 1) == 0)


LOOKUPS = ("none", "key", "channels", "own", "early")


@pytest.mark.parametrize("decay", ["mild", "any", "strong", "scalar", "none"])
@pytest.mark.parametrize("lookup", LOOKUPS)
def test_values_and_gradients_equal_the_reference(lookup, decay):
    inputs = make_scan(75, lookup=lookup, decay=decay)
    expected = run(recurrent_scan, inputs, DEFAULT_CONTEXT, torch.float64)
    for dtype, bound in ((torch.float64, 1e-11), (torch.float32, 1e-6)):
        errors = relative_errors(inputs, dtype=dtype, expected=expected)
        assert max(errors.values()) < bound, (dtype, errors)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 65])
def test_every_length_is_exact(length):
    for lookup in ("key", "early"):
        assert max(relative_errors(make_scan(length, lookup=lookup), dtype=torch.float64).values()) < 1e-11


@pytest.mark.parametrize("hold", [None, 1, 5, 16, 17, 29, 40, 200])
def test_hold_blocks_padding_and_documents_are_exact(hold):
    length = 67
    valid = torch.rand(B, length, generator=torch.Generator().manual_seed(4)) < 0.8
    context = ScanContext(hold, valid, doc_starts(length, hold))
    for lookup, writes in (("key", 1), ("early", 2), ("first", 2), ("none", 1), ("own", 3), ("first", 3)):
        inputs = make_scan(length, lookup=lookup, decay="any", writes=writes)
        expected = run(recurrent_scan, inputs, context, torch.float64)
        for dtype, bound in ((torch.float64, 1e-11), (torch.float32, 1e-6)):
            errors = relative_errors(inputs, context, dtype, expected)
            assert max(errors.values()) < bound, (lookup, writes, errors)


@pytest.mark.parametrize("log_keep", [-1.0, -5.0, -10.0, -18.0, -50.0])
@pytest.mark.parametrize("lookup", ["none", "key", "early"])
@pytest.mark.parametrize("hold", [None, 7])
def test_gradient_of_small_keeps_has_float32_precision(lookup, log_keep, hold):
    q, k, v, gates, state = make_scan(70, lookup=lookup)
    noise = torch.rand(gates.log_keep.shape, generator=torch.Generator().manual_seed(5))
    gates = gates._replace(log_keep=(log_keep * (1 + 0.01 * noise)).double())
    errors = relative_errors((q, k, v, gates, state), ScanContext(hold))
    assert errors["log_keep"] < 2e-6, errors


@pytest.mark.parametrize("log_keep", [-1.0, -10.0, -50.0])
@pytest.mark.parametrize(("lookup", "writes"), [("none", 2), ("key", 2), ("early", 2), ("first", 2), ("own", 3)])
@pytest.mark.parametrize("hold", [None, 7])
def test_gradient_of_small_keeps_is_accurate_if_only_the_first_write_decays(lookup, writes, log_keep, hold):
    """The writes of one token have not decayed until it reads, as in erase_then_delta."""
    q, k, v, gates, state = make_scan(70, lookup=lookup, writes=writes)
    first = torch.arange(70 * writes) % writes == 0
    noise = torch.rand(gates.log_keep.shape, generator=torch.Generator().manual_seed(5))
    log_keep = (log_keep * (1 + 0.01 * noise)).double() * first[:, None]
    inputs = (q, k, v, gates._replace(log_keep=log_keep), state)
    context = ScanContext(hold, None, doc_starts(70, hold))
    expected = run(recurrent_scan, inputs, context, torch.float64)["log_keep"][:, :, first]
    actual = run(chunked_scan, inputs, context, torch.float32)["log_keep"][:, :, first]
    assert (actual - expected).abs().max() < 2e-6 * expected.abs().max()


def test_keeps_of_zero_and_minus_infinity_are_finite():
    q, k, v, gates, state = make_scan(70, lookup="key")
    log_keep = gates.log_keep.clone()
    log_keep[:, :, ::5] = -1000.0
    log_keep[:, :, 3::7] = -math.inf
    results = run(chunked_scan, (q, k, v, gates._replace(log_keep=log_keep), state), DEFAULT_CONTEXT, torch.float32)
    assert all(x.isfinite().all() for x in results.values())
    expected, _ = recurrent_scan(q, k, v, gates._replace(log_keep=log_keep), state)
    torch.testing.assert_close(results["reads"], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("writes", [15, 16, 20])
def test_small_keeps_are_limited_however_many_writes_a_block_has(writes):
    """A block has at least all writes of a token, which may be more than usual."""
    q, k, v, gates, state = make_scan(3, lookup="key", writes=writes)
    inputs = (q, k, v, gates._replace(log_keep=torch.full_like(gates.log_keep, -45.0)), state)
    results = run(chunked_scan, inputs, DEFAULT_CONTEXT, torch.float64)
    assert all(x.isfinite().all() for x in results.values())
    expected, _ = recurrent_scan(*inputs)
    torch.testing.assert_close(results["reads"], expected, atol=1e-12, rtol=1e-12)


def test_repeated_keys_with_beta_2_stay_bounded():
    q, k, v, gates, state = make_scan(131, lookup="key", decay="none")
    k = k[:, :, :1].expand_as(k).contiguous()
    gates = gates._replace(log_keep=torch.zeros_like(k), erase=torch.full_like(gates.erase, 2.0), write=None)
    assert max(relative_errors((q, k, v, gates, state)).values()) < 1e-5


def test_zero_keys_write_nothing():
    q, k, v, gates, state = make_scan(40, lookup="early")
    _, last_state = chunked_scan(q, torch.zeros_like(k), v, gates, state)
    torch.testing.assert_close(last_state, state * gates.log_keep.sum(2)[..., None].exp())


def test_gradients_are_exact_if_half_of_the_keys_are_zero():
    q, k, v, gates, state = make_scan(70, lookup="early", decay="any")
    is_zero = torch.rand(B, H, 70, 1, generator=torch.Generator().manual_seed(6)) < 0.5
    inputs = q, k.masked_fill(is_zero, 0.0), v, gates, state
    assert max(relative_errors(inputs, dtype=torch.float64).values()) < 1e-11
    assert max(relative_errors(inputs).values()) < 1e-6


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_keys_and_losses_of_any_size_keep_the_precision(scale):
    q, k, v, gates, state = make_scan(70, lookup="none", decay="any")
    assert max(relative_errors((q * scale, k * scale, v, gates, state)).values()) < 1e-6


def test_later_tokens_do_not_change_a_bit_of_earlier_reads():
    for lookup in LOOKUPS:
        q, k, v, gates, state = (
            x if isinstance(x, tuple) else x.float() for x in make_scan(70, lookup=lookup, decay="any")
        )
        gates = map_gates(torch.Tensor.float, gates)
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x[:, :, 41:] = 3.0
        other_gates = map_gates(lambda gate: torch.cat([gate[:, :, :41], gate[:, :, 41:] * 0.5], 2), gates)
        reads, _ = chunked_scan(q, k, v, gates, state)
        other_reads, _ = chunked_scan(*changed, other_gates, state)
        assert torch.equal(reads[:, :, :41], other_reads[:, :, :41]), lookup


def test_rows_do_not_depend_on_each_other():
    q, k, v, gates, state = make_scan(70, lookup="key", decay="any")
    reads, last_state = chunked_scan(q, k, v, gates, state)
    one_row = chunked_scan(q[:1], k[:1], v[:1], map_gates(lambda gate: gate[:1], gates), state[:1])
    assert torch.equal(one_row[0], reads[:1]) and torch.equal(one_row[1], last_state[:1])


def test_a_sequence_can_be_scanned_in_pieces():
    q, k, v, gates, state = make_scan(71, lookup="first", writes=2)
    whole, last_state = chunked_scan(q, k, v, gates, state)
    pieces = []
    for start, stop in ((0, 1), (1, 30), (30, 71)):

        def select(x, start=start, stop=stop):
            per_token = x.shape[2] // 71
            return x[:, :, start * per_token : stop * per_token]

        reads, state = chunked_scan(select(q), select(k), select(v), map_gates(select, gates), state)
        pieces.append(reads)
    torch.testing.assert_close(torch.cat(pieces, 2), whole)
    torch.testing.assert_close(state, last_state)


def test_bfloat16_inputs_have_a_float32_state():
    q, k, v, gates, _ = make_scan(70, lookup="key")
    q, k, v = (x.bfloat16() for x in (q, k, v))
    gates = map_gates(torch.Tensor.bfloat16, gates)
    reads, state = chunked_scan(q, k, v, gates)
    expected, expected_state = recurrent_scan(*(x.double() for x in (q, k, v)), map_gates(torch.Tensor.double, gates))
    assert (reads.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(state.double(), expected_state, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(reads.double(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("chunk_size", [1, 6, 16, 48, 256])
def test_chunks_of_any_size_are_exact(chunk_size):
    for lookup, writes, hold in (("key", 1, None), ("first", 2, 5), ("own", 3, 29)):
        inputs = make_scan(67, lookup=lookup, decay="any", writes=writes)
        context = ScanContext(hold, None, doc_starts(67, hold))
        expected = run(recurrent_scan, inputs, context, torch.float64)

        def scan(*arguments):
            return chunked_scan(*arguments, chunk_size=chunk_size)

        actual = run(scan, inputs, context, torch.float64)
        for name, x in expected.items():
            assert (actual[name] - x).abs().max() <= 1e-11 * x.abs().max(), (lookup, name)


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_groups_of_one_row_give_the_same_result(lookup, monkeypatch):
    inputs = make_scan(70, lookup=lookup, decay="any")
    context = ScanContext(7, None, doc_starts(70, 7))
    ungrouped = run(chunked_scan, inputs, context, torch.float64)
    monkeypatch.setattr("hqlt_lab.ops.scan.channel_gate_scan.CACHE_ELEMENTS", 1)
    grouped = run(chunked_scan, inputs, context, torch.float64)
    for name, x in ungrouped.items():
        torch.testing.assert_close(grouped[name], x)


@pytest.mark.parametrize("output", [0, 1], ids=["reads", "state"])
def test_gradients_are_exact_if_only_one_output_has_a_gradient(output):
    q, k, v, gates, _ = make_scan(70, lookup="early")
    gates = map_gates(torch.Tensor.requires_grad_, gates)
    leaves = [k.requires_grad_(), v.requires_grad_(), *(gate for gate in gates if gate is not None)]
    expected, actual = (
        torch.autograd.grad(scan(q, k, v, gates)[output].square().sum(), leaves)
        for scan in (recurrent_scan, chunked_scan)
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("hold", [0, 3, 40])
@pytest.mark.parametrize(("lookup", "writes"), [("none", 1), ("key", 1), ("early", 1), ("first", 2)])
def test_operators_pass_opcheck(lookup, writes, hold):
    q, k, v, gates, state = make_scan(70, lookup=lookup, writes=writes)
    lookup_key, early = gates.lookup_key(k), gates.early_lookup is not None
    tensors = (q, k, v, lookup_key, gates.log_keep, state)
    leaves = [None if x is None else x.detach().clone().requires_grad_() for x in tensors]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for doc_start in (None, doc_starts(70, hold)):
        arguments = (*leaves, doc_start, hold, 16, early, True)
        torch.library.opcheck(channel_gate_scan_op, arguments, test_utils=checks)
    torch.library.opcheck(channel_gate_scan_op, (*tensors[:5], None, None, hold, 16, early, False), test_utils=checks)
    with torch.no_grad():
        reads, last_state, *saved = channel_gate_scan_op(*tensors, None, hold, 16, early, True)
    arguments = (reads, last_state, *tensors[:5], None, *saved, hold, 16, early)
    torch.library.opcheck(channel_gate_scan_backward_op, arguments, test_utils=("test_schema", "test_faketensor"))


def test_the_operator_compiles_to_one_graph():
    q, k, v, gates, state = make_scan(40, lookup="key")

    def loss(q, k, v, log_keep, erase, write, state):
        reads, last_state = chunked_scan(q, k, v, Gates(log_keep, erase, write), state)
        return reads.square().sum() + last_state.square().sum()

    inputs = [x.requires_grad_() for x in (q, k, v, gates.log_keep, gates.erase, gates.write.clone(), state)]
    expected = torch.autograd.grad(loss(*inputs), inputs)
    actual = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*inputs), inputs)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)
