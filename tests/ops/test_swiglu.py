"""The gated MLP in row blocks equals the one written as three linear maps."""

import torch
import torch.nn.functional as F

from hqlt_lab.ops.flops import measure_flops
from hqlt_lab.ops.fused import gated_mlp as module
from hqlt_lab.ops.fused.gated_mlp import is_blocking_faster, swiglu, swiglu_op


def make_inputs(rows=(3, 50), width=6, inner=10):
    shapes = ((*rows, width), (inner, width), (inner, width), (width, inner))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_values_and_gradients_equal_those_of_three_linear_maps(monkeypatch):
    x, gate, up, down = inputs = make_inputs()
    plain = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    assert not is_blocking_faster(x, 10)
    monkeypatch.setattr(module, "CACHE_ELEMENTS", 70)  # seven rows at a time
    assert is_blocking_faster(x, 10)
    blocks = swiglu(*inputs)
    torch.testing.assert_close(blocks, plain)
    grad_output = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad(blocks, inputs, grad_output), torch.autograd.grad(plain, inputs, grad_output)
    )


def test_operator_passes_opcheck():
    x, *weights = make_inputs()
    x = x.detach().flatten(0, 1).requires_grad_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(swiglu_op, (x, *weights), test_utils=checks)


def test_flops_are_those_of_three_linear_maps(monkeypatch):
    monkeypatch.setattr(module, "CACHE_ELEMENTS", 70)
    inputs = make_inputs()
    assert measure_flops(lambda: swiglu(*inputs)) == 2 * 150 * 3 * 6 * 10


def test_blocks_are_not_used_under_autocast():
    x = torch.randn(2**10, 2**10)
    assert is_blocking_faster(x, 2**10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_blocking_faster(x, 2**10)
