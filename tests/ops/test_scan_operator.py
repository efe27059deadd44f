"""The scan as a torch operator: opcheck, torch.compile, saved memory, and independence of groups and chunks."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.ops.attention.scheduled_softmax import attend
from hqlt_lab.ops.attention.sliding_window_cpu import banded_attention_op, sliding_window_attention
from hqlt_lab.ops.gates import Gates, ScanContext, map_gates
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE, chunked_scan, scan_op
from hqlt_lab.ops.scan.recurrent import recurrent_scan

GATES = {"add": (), "decay": ("log_keep",), "delta": ("erase",), "gated delta": ("log_keep", "erase")}


def make_inputs(tokens, gates=("log_keep", "erase"), batch=2, heads=2, size=4, dtype=torch.float64):
    """Return inputs of a scan with tied erase and write gates."""
    q, k, v = (torch.randn(batch, heads, tokens, size, dtype=dtype, requires_grad=True) for _ in range(3))
    rand = torch.rand(2, batch, heads, tokens, dtype=dtype)
    log_keep, beta = (-0.2 * rand[0]).requires_grad_(), rand[1].requires_grad_()
    erase = beta if "erase" in gates else None
    return q, F.normalize(k, dim=-1), v, Gates(log_keep if "log_keep" in gates else None, erase, erase)


def gradients(scan_result, q, k, v, gates):
    inputs = [q, k, v, *{id(gate): gate for gate in gates if gate is not None}.values()]
    reads, last = scan_result
    loss = (reads * torch.linspace(-1, 1, reads.numel(), dtype=reads.dtype).view_as(reads)).sum() + last.square().sum()
    return torch.autograd.grad(loss, inputs, retain_graph=True)


@pytest.mark.parametrize("context", [ScanContext(), ScanContext(hold=3), ScanContext(hold=100)], ids=str)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_long_scan_from_an_empty_state_equals_the_reference(gates, context):
    inputs = make_inputs(5 * CHUNK_SIZE + 11, gates, batch=1)
    actual, expected = chunked_scan(*inputs, None, context), recurrent_scan(*inputs, None, context)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, *inputs), gradients(expected, *inputs))


@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_small_row_groups_give_the_same_result(gates, monkeypatch):
    inputs = make_inputs(90, gates, batch=3)
    ungrouped = chunked_scan(*inputs)
    monkeypatch.setattr("hqlt_lab.ops.scan.chunked_inputs.CACHE_ELEMENTS", 1)  # two rows at a time
    grouped = chunked_scan(*inputs)
    torch.testing.assert_close(grouped, ungrouped)
    torch.testing.assert_close(gradients(grouped, *inputs), gradients(ungrouped, *inputs))


def test_gradients_are_right_if_only_the_reads_have_one():
    q, k, v, gates = make_inputs(150)
    (actual,) = torch.autograd.grad(chunked_scan(q, k, v, gates)[0].sum(), v)
    (expected,) = torch.autograd.grad(recurrent_scan(q, k, v, gates)[0].sum(), v)
    torch.testing.assert_close(actual, expected)


def test_operators_pass_opcheck():
    q, k, v, gates = make_inputs(70)
    state, doc_start = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True), torch.rand(2, 70) < 0.1
    inputs = [x.detach().requires_grad_() for x in (q, k, v, gates.log_keep, gates.erase)]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(scan_op, (*inputs, None, state, doc_start, 0, 16, True, True), test_utils=checks)
    torch.library.opcheck(scan_op, (*inputs[:3], None, None, None, None, None, 32, 16, True, True), test_utils=checks)
    uneven = [x.detach().requires_grad_() for x in make_inputs(151)[:3]]
    beta = torch.rand(2, 2, 151, dtype=torch.float64, requires_grad=True)
    arguments = (*uneven, None, beta, None, None, None, 3, 64, True, True)
    torch.library.opcheck(scan_op, arguments, test_utils=(*checks, "test_aot_dispatch_dynamic"))
    position = torch.arange(64)[None].expand(2, -1)
    q, k, v = (torch.randn(2, 2, length, 4, requires_grad=True) for length in (64, 68, 68))
    torch.library.opcheck(banded_attention_op, (q, k, v, position, 32, 0, 5, 0), test_utils=checks)


@pytest.mark.parametrize("tokens", [2 * CHUNK_SIZE, 40 * CHUNK_SIZE])
def test_torch_compile_does_not_unroll_chunks_or_bands(tokens):
    """There is one operator per memory, whatever the length of the sequence."""
    graphs = []

    def record_graph(graph, _):
        graphs.append([node for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    def both_memories(q, k, v, gates):
        return chunked_scan(q, k, v, gates)[0] + sliding_window_attention(q, k, v, Schedule(window=8), None, 32)

    torch.compiler.reset()
    q, k, v, gates = make_inputs(tokens)
    q, k, v, gates = q.detach(), k.detach(), v.detach(), map_gates(torch.Tensor.detach, gates)
    compiled = torch.compile(both_memories, backend=record_graph, fullgraph=True)(q, k, v, gates)
    torch.testing.assert_close(compiled, both_memories(q, k, v, gates))
    assert len(graphs) == 1 and len(graphs[0]) < 40
    assert sum("hqlt" in str(node.target) for node in graphs[0]) == 2


def test_memory_saved_for_backward_is_linear_in_the_length_and_as_documented():
    saved_bytes = {}

    def record_saved(tensor):
        saved_bytes[tensor.data_ptr()] = tensor.nbytes
        return tensor

    tokens, size = 8 * CHUNK_SIZE, 64
    q, k, v, gates = make_inputs(tokens, ("erase",), batch=1, heads=1, size=size, dtype=torch.float32)
    q, k, v, beta = (x.detach().requires_grad_() for x in (q, k, v, gates.erase))
    with torch.autograd.graph.saved_tensors_hooks(record_saved, lambda tensor: tensor):
        chunked_scan(q, k, v, Gates(None, beta, beta))
    input_numbers = tokens * (3 * size + 1)
    solution_numbers = tokens * (size + CHUNK_SIZE)  # recalled values and inverses
    state_numbers = (tokens // CHUNK_SIZE + 1) * size * size
    assert sum(saved_bytes.values()) == 4 * (input_numbers + solution_numbers + state_numbers)


def test_torch_compile_makes_one_graph_for_all_lengths():
    torch.compiler.reset()
    graphs = []

    def record_graph(graph, _):
        graphs.append(graph)
        return graph

    model = build_model(vocabulary=11, width=16, heads=2, layers=1, mixer="fw_only")
    compiled = torch.compile(model, backend=record_graph)
    for tokens in (80, 81, 100, 130, 300):
        token_ids = torch.randint(0, 11, (2, tokens))
        torch.testing.assert_close(compiled(token_ids)[0], model(token_ids)[0])
    assert len(graphs) <= 2  # one for the first length, one for all others


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_derivatives_equal_those_of_the_reference():
    q, k, v, gates = (*(x.detach() for x in make_inputs(70)[:3]), Gates())

    def compute_tangent(function):
        return torch.func.jvp(function, (q,), (torch.ones_like(q),))[1]

    torch.testing.assert_close(
        compute_tangent(lambda q: chunked_scan(q, k, v, gates)[0]),
        compute_tangent(lambda q: recurrent_scan(q, k, v, gates)[0]),
    )
    masked = ~Schedule(window=5).softmax_mask(70)
    torch.testing.assert_close(
        compute_tangent(lambda q: attend(q, k, v, Schedule(window=5))),
        compute_tangent(lambda q: (q @ k.mT / 2).masked_fill(masked, -torch.inf).softmax(-1) @ v),
    )


def test_values_at_invalid_tokens_do_not_matter():
    q, k, v, gates = make_inputs(70)
    valid_mask = torch.ones(2, 70, dtype=torch.bool)
    valid_mask[0, 3:9] = False
    invalid = (~valid_mask)[:, None, :, None]
    actual = chunked_scan(
        q,
        k.masked_fill(invalid, torch.nan),
        v.masked_fill(invalid, torch.nan),
        gates,
        None,
        ScanContext(valid_mask=valid_mask),
    )
    torch.testing.assert_close(actual, recurrent_scan(q, k, v, gates, None, ScanContext(valid_mask=valid_mask)))
