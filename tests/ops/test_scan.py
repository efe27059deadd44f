"""The scan as an operator: what torch expects of one, what it keeps, and that groups and chunks do not show."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.ops.attention import attend
from hqlt_lab.ops.chunked import CHUNK, chunked
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.scan import scan
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Course, Gates, each
from hqlt_lab.ops.windowed import bands, windowed

GATES = {"add": (), "fade": ("log_keep",), "delta": ("erase",), "gated delta": ("log_keep", "erase")}


def example(tokens, gates=("log_keep", "erase"), batch=2, heads=2, size=4, dtype=torch.float64):
    """What erases also writes."""
    q, k, v = (torch.randn(batch, heads, tokens, size, dtype=dtype, requires_grad=True) for _ in range(3))
    rand = torch.rand(2, batch, heads, tokens, dtype=dtype)
    log_keep, beta = (-0.2 * rand[0]).requires_grad_(), rand[1].requires_grad_()
    erase = beta if "erase" in gates else None
    return q, F.normalize(k, dim=-1), v, Gates(log_keep if "log_keep" in gates else None, erase, erase)


def gradients(found, q, k, v, gates):
    inputs = [q, k, v, *{id(gate): gate for gate in gates if gate is not None}.values()]
    reads, last = found
    loss = (reads * torch.linspace(-1, 1, reads.numel(), dtype=reads.dtype).view_as(reads)).sum() + last.square().sum()
    return torch.autograd.grad(loss, inputs, retain_graph=True)


@pytest.mark.parametrize("course", [Course(), Course(hold=3), Course(hold=100)], ids=str)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_a_long_text_from_nothing_is_the_slow_truth(gates, course):
    inputs = example(5 * CHUNK + 11, gates, batch=1)
    fast, slow = chunked(*inputs, None, course), recurrent(*inputs, None, course)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(gradients(fast, *inputs), gradients(slow, *inputs))


@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_rows_in_small_groups_are_all_rows(gates, monkeypatch):
    inputs = example(90, gates, batch=3)
    whole = chunked(*inputs)
    monkeypatch.setattr("hqlt_lab.ops.text.CACHED", 1)  # two rows at a time
    grouped = chunked(*inputs)
    torch.testing.assert_close(grouped, whole)
    torch.testing.assert_close(gradients(grouped, *inputs), gradients(whole, *inputs))


def test_only_the_reads_may_have_a_gradient():
    q, k, v, gates = example(150)
    (one,) = torch.autograd.grad(chunked(q, k, v, gates)[0].sum(), v)
    (other,) = torch.autograd.grad(recurrent(q, k, v, gates)[0].sum(), v)
    torch.testing.assert_close(one, other)


def test_the_operators_are_what_torch_expects_of_operators():
    q, k, v, gates = example(70)
    state, starts = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True), torch.rand(2, 70) < 0.1
    inputs = [x.detach().requires_grad_() for x in (q, k, v, gates.log_keep, gates.erase)]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(scan, (*inputs, None, state, starts, 0, 16, True, True), test_utils=checks)
    torch.library.opcheck(scan, (*inputs[:3], None, None, None, None, None, 32, 16, True, True), test_utils=checks)
    uneven = [x.detach().requires_grad_() for x in example(151)[:3]]
    beta = torch.rand(2, 2, 151, dtype=torch.float64, requires_grad=True)
    arguments = (*uneven, None, beta, None, None, None, 3, 64, True, True)
    torch.library.opcheck(scan, arguments, test_utils=(*checks, "test_aot_dispatch_dynamic"))
    place = torch.arange(64)[None].expand(2, -1)
    q, k, v = (torch.randn(2, 2, length, 4, requires_grad=True) for length in (64, 68, 68))
    torch.library.opcheck(bands, (q, k, v, place, 32, 0, 5, 0), test_utils=checks)


@pytest.mark.parametrize("tokens", [2 * CHUNK, 40 * CHUNK])
def test_torch_compile_does_not_unroll_the_chunks_or_the_bands(tokens):
    """However long the text, there is one operator for each memory."""
    graphs = []

    def look(graph, _):
        graphs.append([node for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    def both(q, k, v, gates):
        return chunked(q, k, v, gates)[0] + windowed(q, k, v, Schedule(window=8), None, 32)

    torch.compiler.reset()
    q, k, v, gates = example(tokens)
    q, k, v, gates = q.detach(), k.detach(), v.detach(), each(torch.Tensor.detach, gates)
    compiled = torch.compile(both, backend=look, fullgraph=True)(q, k, v, gates)
    torch.testing.assert_close(compiled, both(q, k, v, gates))
    assert len(graphs) == 1 and len(graphs[0]) < 40
    assert sum("hqlt" in str(node.target) for node in graphs[0]) == 2


def test_what_is_kept_for_backwards_is_linear_in_the_text_and_as_stated():
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    tokens, size = 8 * CHUNK, 64
    q, k, v, gates = example(tokens, ("erase",), batch=1, heads=1, size=size, dtype=torch.float32)
    q, k, v, beta = (x.detach().requires_grad_() for x in (q, k, v, gates.erase))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        chunked(q, k, v, Gates(None, beta, beta))
    given = tokens * (3 * size + 1)
    solved = tokens * (size + CHUNK)  # what was recalled, and the inverses
    states = (tokens // CHUNK + 1) * size * size
    assert sum(kept.values()) == 4 * (given + solved + states)


def test_torch_compile_makes_one_graph_for_all_lengths():
    torch.compiler.reset()
    graphs = []

    def look(graph, _):
        graphs.append(graph)
        return graph

    model = build_model(vocabulary=11, width=16, heads=2, layers=1, mixer="fw_only")
    compiled = torch.compile(model, backend=look)
    for tokens in (80, 81, 100, 130, 300):
        words = torch.randint(0, 11, (2, tokens))
        torch.testing.assert_close(compiled(words)[0], model(words)[0])
    assert len(graphs) <= 2  # the first length, and all others


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_derivatives_are_those_of_the_slow_truth():
    q, k, v, gates = (*(x.detach() for x in example(70)[:3]), Gates())

    def tangent(work):
        return torch.func.jvp(work, (q,), (torch.ones_like(q),))[1]

    torch.testing.assert_close(
        tangent(lambda q: chunked(q, k, v, gates)[0]), tangent(lambda q: recurrent(q, k, v, gates)[0])
    )
    hidden = ~Schedule(window=5).softmax_sees(70)
    torch.testing.assert_close(
        tangent(lambda q: attend(q, k, v, Schedule(window=5))),
        tangent(lambda q: (q @ k.mT / 2).masked_fill(hidden, -torch.inf).softmax(-1) @ v),
    )


def test_what_stands_where_no_token_is_does_not_matter():
    q, k, v, gates = example(70)
    real = torch.ones(2, 70, dtype=torch.bool)
    real[0, 3:9] = False
    holes = (~real)[:, None, :, None]
    one = chunked(q, k.masked_fill(holes, torch.nan), v.masked_fill(holes, torch.nan), gates, None, Course(real=real))
    torch.testing.assert_close(one, recurrent(q, k, v, gates, None, Course(real=real)))
