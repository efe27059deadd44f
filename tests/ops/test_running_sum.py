"""A running sum by products is torch's own, in values and gradients, and repeats on a GPU."""

import pytest
import torch

from hqlt_lab.ops.chunked import chunked
from hqlt_lab.ops.running_sum import BLOCK, by_products, running_sum
from hqlt_lab.ops.steps import Gates

LENGTHS = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, BLOCK**2, BLOCK**2 + 5]


@pytest.fixture
def deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", LENGTHS)
def test_products_sum_as_torch_does(length, dtype):
    x = torch.randn(2, length, 3, dtype=dtype)
    sums = by_products(x, 1)
    assert sums.dtype == dtype and sums.shape == x.shape
    exact = x.double().cumsum(1)
    # both ways of float32 are held against float64; the products are rounded once
    torch.testing.assert_close(sums, exact.to(dtype), rtol=1e-6 if dtype == torch.float32 else 1e-11, atol=1e-11)
    torch.testing.assert_close(sums, running_sum(x, 1), rtol=1e-4 if dtype == torch.float32 else 1e-11, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_any_dimension_can_be_summed_along(dim):
    x = torch.randn(5, 67, 70, dtype=torch.float64)
    torch.testing.assert_close(by_products(x, dim), x.cumsum(dim))


@pytest.mark.parametrize("length", [1, BLOCK, 2 * BLOCK + 9])
def test_gradients_of_the_products_are_those_of_torch(length):
    x = torch.randn(2, 3, length, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    one, other = (torch.autograd.grad((way(x, 2).sin() * weight).sum(), x) for way in (by_products, running_sum))
    torch.testing.assert_close(one, other)


def test_no_sum_is_lost_to_autocast_or_to_large_numbers():
    x = torch.rand(1, 5000) + 1000
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = by_products(x, 1)
    assert torch.equal(sums, by_products(x, 1))
    torch.testing.assert_close(sums.double(), x.double().cumsum(1), rtol=1e-7, atol=0)


def test_on_a_cpu_and_for_whole_numbers_torch_sums_whatever_is_asked_for(deterministic):
    x = torch.randn(2, 300)
    assert torch.equal(running_sum(x, 1), x.cumsum(1))
    assert torch.equal(running_sum(torch.arange(300), 0), torch.arange(300).cumsum(0))


@pytest.mark.gpu
def test_a_scan_with_keeps_repeats_on_a_gpu(deterministic):
    """torch would raise at the first cumsum."""
    q, k, v = (torch.randn(2, 3, 200, 8, device="cuda", requires_grad=True) for _ in range(3))
    gates = Gates(log_keep=-torch.rand(2, 3, 200, device="cuda").requires_grad_())

    def once():
        reads, _ = chunked(q, k, v, gates)
        return [reads, *torch.autograd.grad(reads.sin().sum(), (q, k, v, gates.log_keep))]

    assert all(torch.equal(one, other) for one, other in zip(once(), once(), strict=True))
