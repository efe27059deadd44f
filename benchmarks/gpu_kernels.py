"""Kernels that `gpu.py` times: forward and backward pass of the two memories alone, with each backend.

The inputs are those of a layer: queries and keys of the fast weights are float32, as feature maps return them, and
values have the precision of the run.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpu_cases import SCALES, Case, Machine, PreparedCase
from torch import Tensor

from hqlt_lab.ops.attention.scheduled_softmax import attend
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, REFERENCE_BACKENDS, SCAN_BACKENDS, linear_scan
from hqlt_lab.ops.gates import Gates
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32

KernelFunction = Callable[..., Tensor]  # q, k, v, beta, log_keep -> output
RULES: dict[str, Callable[[Tensor, Tensor], Gates]] = {
    "delta": lambda beta, log_keep: Gates(erase=beta, write=beta),
    "gated_delta": lambda beta, log_keep: Gates(log_keep, beta, beta),
    "linear_attention": lambda beta, log_keep: Gates(),
}
SCHEDULES = {"window 64": Schedule(window=64), "blocks of 64": Schedule(block=64), "everything": Schedule()}


def kernel_cases(size: str) -> Iterator[Case]:
    """Yield scans with every backend and with fla called directly, then softmax attention with every backend."""
    for rule in RULES:
        for backend in SCAN_BACKENDS:
            if backend not in REFERENCE_BACKENDS:  # thousands of times slower
                prepare = partial(prepare_kernel, scan_kernel(rule, backend), at_least_float32, size)
                yield Case("kernel", size, f"{rule} scan by {backend}", backend == "fla", prepare)
        prepare = partial(prepare_kernel, FLA_KERNELS[rule], keep_dtype, size)
        yield Case("kernel", size, f"{rule} scan, fla's own function", True, prepare)
    for schedule_name in SCHEDULES:
        for backend in ATTENTION_BACKENDS:
            if backend not in REFERENCE_BACKENDS:
                prepare = partial(prepare_kernel, attention_kernel(schedule_name, backend), keep_dtype, size)
                yield Case("kernel", size, f"softmax over {schedule_name} by {backend}", False, prepare)


def keep_dtype(tensor: Tensor) -> Tensor:
    return tensor


def prepare_kernel(
    kernel: KernelFunction, cast_keys: Callable[[Tensor], Tensor], size: str, machine: Machine, rows: int
) -> PreparedCase:
    """Prepare the forward and backward pass of a kernel, with gradients of all its inputs."""
    scale = SCALES[size]
    inputs = random_inputs(rows, scale.heads, scale.length, scale.width // scale.heads, machine, cast_keys)

    def run() -> Tensor:
        with torch.autocast(machine.device, machine.dtype):
            output = kernel(*inputs)
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)
        return output.detach().float().square().mean()

    shape = f"B{rows} H{scale.heads} T{scale.length} D{scale.width // scale.heads}"
    return PreparedCase(run, {"shape": shape}, rows * scale.length)


def random_inputs(
    rows: int, heads: int, tokens: int, channels: int, machine: Machine, cast_keys: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Return random q, k, v, beta and log_keep; the heads of a token are adjacent in memory, as after a projection."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": machine.device, "dtype": machine.dtype}
    q, k, v = (torch.randn(rows, tokens, heads, channels, **options).transpose(1, 2) for _ in range(3))
    beta = torch.rand(rows, tokens, heads, **options).mT
    log_keep = -0.1 * torch.rand(rows, tokens, heads, device=machine.device).mT
    inputs = (cast_keys(F.normalize(q, dim=-1)), cast_keys(F.normalize(k, dim=-1)), v, beta, log_keep)
    return [x.detach().requires_grad_() for x in inputs]


def scan_kernel(rule: str, backend: str) -> KernelFunction:
    def run_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
        return linear_scan(q, k, v, RULES[rule](beta, log_keep), backend=backend)[0]

    return run_scan


def attention_kernel(schedule_name: str, backend: str) -> KernelFunction:
    def run_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
        return attend(q, k, v, SCHEDULES[schedule_name], backend=backend)

    return run_attention


def fla_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.delta_rule import chunk_delta_rule

    return chunk_delta_rule(*to_time_major(q, k, v), beta=beta.mT, scale=1.0)[0]


def fla_gated_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return chunk_gated_delta_rule(*to_time_major(q, k, v), g=log_keep.mT, beta=beta.mT, scale=1.0)[0]


def fla_linear_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.linear_attn import chunk_linear_attn

    return chunk_linear_attn(*to_time_major(q, k, v), scale=1.0, normalize=False)[0]


def to_time_major(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Transpose [B, H, T, D] to [B, T, H, D], the layout of fla and of the memory."""
    return tuple(x.transpose(1, 2) for x in tensors)


FLA_KERNELS = {"delta": fla_delta, "gated_delta": fla_gated_delta, "linear_attention": fla_linear_attention}
