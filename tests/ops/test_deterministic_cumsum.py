"""The cumulative sum by matrix products equals torch's own in values and gradients, and is reproducible on a GPU."""

import pytest
import torch

from hqlt_lab.ops.gates import Gates
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.ops.scan.deterministic_cumsum import BLOCK_SIZE, deterministic_cumsum, matmul_cumsum

LENGTHS = [1, 2, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE + 17, BLOCK_SIZE**2, BLOCK_SIZE**2 + 5]


@pytest.fixture
def deterministic():
    was_enabled = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(was_enabled)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", LENGTHS)
def test_matmul_cumsum_equals_torch_cumsum(length, dtype):
    x = torch.randn(2, length, 3, dtype=dtype)
    sums = matmul_cumsum(x, 1)
    assert sums.dtype == dtype and sums.shape == x.shape
    exact = x.double().cumsum(1)
    # compared with float64: the products are rounded only once
    torch.testing.assert_close(sums, exact.to(dtype), rtol=1e-6 if dtype == torch.float32 else 1e-11, atol=1e-11)
    torch.testing.assert_close(
        sums, deterministic_cumsum(x, 1), rtol=1e-4 if dtype == torch.float32 else 1e-11, atol=1e-4
    )


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_any_dimension_can_be_summed(dim):
    x = torch.randn(5, 67, 70, dtype=torch.float64)
    torch.testing.assert_close(matmul_cumsum(x, dim), x.cumsum(dim))


@pytest.mark.parametrize("length", [1, BLOCK_SIZE, 2 * BLOCK_SIZE + 9])
def test_gradients_equal_those_of_torch(length):
    x = torch.randn(2, 3, length, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    actual, expected = (
        torch.autograd.grad((cumsum(x, 2).sin() * weight).sum(), x) for cumsum in (matmul_cumsum, deterministic_cumsum)
    )
    torch.testing.assert_close(actual, expected)


def test_precision_is_kept_under_autocast_and_for_large_numbers():
    x = torch.rand(1, 5000) + 1000
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = matmul_cumsum(x, 1)
    assert torch.equal(sums, matmul_cumsum(x, 1))
    torch.testing.assert_close(sums.double(), x.double().cumsum(1), rtol=1e-7, atol=0)


def test_cpu_tensors_and_integers_use_torch_cumsum(deterministic):
    x = torch.randn(2, 300)
    assert torch.equal(deterministic_cumsum(x, 1), x.cumsum(1))
    assert torch.equal(deterministic_cumsum(torch.arange(300), 0), torch.arange(300).cumsum(0))


@pytest.mark.gpu
def test_scan_with_keep_gates_is_reproducible_on_a_gpu(deterministic):
    """torch.cumsum would raise here."""
    q, k, v = (torch.randn(2, 3, 200, 8, device="cuda", requires_grad=True) for _ in range(3))
    gates = Gates(log_keep=-torch.rand(2, 3, 200, device="cuda").requires_grad_())

    def run_once():
        reads, _ = chunked_scan(q, k, v, gates)
        return [reads, *torch.autograd.grad(reads.sin().sum(), (q, k, v, gates.log_keep))]

    assert all(torch.equal(first, second) for first, second in zip(run_once(), run_once(), strict=True))
