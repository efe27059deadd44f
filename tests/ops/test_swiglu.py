"""The gated MLP in blocks is the one that is written as three linear maps."""

import torch
import torch.nn.functional as F

from hqlt_lab.ops import swiglu as module
from hqlt_lab.ops.flops import counted
from hqlt_lab.ops.swiglu import in_blocks, pays, swiglu


def example(rows=(3, 50), width=6, inner=10):
    shapes = ((*rows, width), (inner, width), (inner, width), (width, inner))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_in_blocks_it_is_three_linear_maps_and_so_are_its_gradients(monkeypatch):
    x, gate, up, down = inputs = example()
    plain = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    assert not pays(x, 10)
    monkeypatch.setattr(module, "CACHED", 70)  # seven rows at a time
    assert pays(x, 10)
    blocks = swiglu(*inputs)
    torch.testing.assert_close(blocks, plain)
    given = torch.randn_like(plain)
    torch.testing.assert_close(torch.autograd.grad(blocks, inputs, given), torch.autograd.grad(plain, inputs, given))


def test_it_is_what_torch_expects_of_an_operator():
    x, *weights = example()
    x = x.detach().flatten(0, 1).requires_grad_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(in_blocks, (x, *weights), test_utils=checks)


def test_torch_counts_the_products_that_it_stands_for(monkeypatch):
    monkeypatch.setattr(module, "CACHED", 70)
    inputs = example()
    assert counted(lambda: swiglu(*inputs)) == 2 * 150 * 3 * 6 * 10


def test_under_autocast_torch_chooses():
    x = torch.randn(2**10, 2**10)
    assert pays(x, 2**10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not pays(x, 2**10)
