"""Kernels that `gpu.py` times: forward and backward pass of the two memories alone, with each backend.

The inputs are those of a layer: queries and keys of the fast weights are float32, as feature maps return them, and
values have the precision of the run.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from gpu_cases import SCALES, Case, Machine, PreparedCase
from torch import Tensor

from hqlt_lab.ops.attention.scheduled_softmax import attend
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, REFERENCE_BACKENDS, SCAN_BACKENDS, linear_scan
from hqlt_lab.ops.gates import Gates
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32


class KernelTensors(NamedTuple):
    """Inputs of the timed kernels [B, H, T, ...], each with a gradient; a kernel uses some of them."""

    q: Tensor
    k: Tensor
    v: Tensor
    lookup: Tensor  # a lookup key other than k
    beta: Tensor  # [B, H, T]
    log_keep: Tensor  # [B, H, T]
    channel_log_keep: Tensor
    channel_erase: Tensor
    channel_write: Tensor


KernelFunction = Callable[[KernelTensors], Tensor]
RULES: dict[str, Callable[[KernelTensors], Gates]] = {
    "delta": lambda x: Gates(erase=x.beta, write=x.beta),
    "gated_delta": lambda x: Gates(x.log_keep, x.beta, x.beta),
    "linear_attention": lambda x: Gates(),
    "gla": lambda x: Gates(x.channel_log_keep),
    "kda": lambda x: Gates(x.channel_log_keep, x.beta, x.beta),
    "gdn2": lambda x: Gates(x.channel_log_keep, x.channel_erase, x.channel_write),
    "comba": lambda x: Gates(x.log_keep, x.beta, x.beta, early_lookup=x.lookup),
    "dplr": lambda x: Gates(x.channel_log_keep, early_lookup=x.lookup),  # one step of rwkv7
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
            output = kernel(inputs)
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)
        return output.detach().float().square().mean()

    shape = f"B{rows} H{scale.heads} T{scale.length} D{scale.width // scale.heads}"
    return PreparedCase(run, {"shape": shape}, rows * scale.length)


def random_inputs(
    rows: int, heads: int, tokens: int, channels: int, machine: Machine, cast_keys: Callable[[Tensor], Tensor]
) -> KernelTensors:
    """Return random inputs; the heads of a token are adjacent in memory, as after a projection."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": machine.device, "dtype": machine.dtype}
    shape = (rows, tokens, heads, channels)
    q, k, v, lookup = (torch.randn(shape, **options).transpose(1, 2) for _ in range(4))
    q, k, lookup = (cast_keys(F.normalize(x, dim=-1)) for x in (q, k, lookup))
    beta = torch.rand(shape[:3], **options).mT
    log_keep = -0.1 * torch.rand(shape[:3], device=machine.device).mT
    channel_log_keep = -0.1 * torch.rand(shape, device=machine.device).transpose(1, 2)
    channel_erase, channel_write = (torch.rand(shape, **options).transpose(1, 2) for _ in range(2))
    inputs = (q, k, v, lookup, beta, log_keep, channel_log_keep, channel_erase, channel_write)
    return KernelTensors(*(x.detach().requires_grad_() for x in inputs))


def scan_kernel(rule: str, backend: str) -> KernelFunction:
    return lambda x: linear_scan(x.q, x.k, x.v, RULES[rule](x), backend=backend)[0]


def attention_kernel(schedule_name: str, backend: str) -> KernelFunction:
    return lambda x: attend(x.q, x.k, x.v, SCHEDULES[schedule_name], backend=backend)


def fla_delta(x: KernelTensors) -> Tensor:
    from fla.ops.delta_rule import chunk_delta_rule

    return chunk_delta_rule(**to_time_major(q=x.q, k=x.k, v=x.v), beta=x.beta.mT, scale=1.0)[0]


def fla_gated_delta(x: KernelTensors) -> Tensor:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    tensors = to_time_major(q=x.q, k=x.k, v=x.v)
    return chunk_gated_delta_rule(**tensors, g=x.log_keep.mT, beta=x.beta.mT, scale=1.0)[0]


def fla_linear_attention(x: KernelTensors) -> Tensor:
    from fla.ops.linear_attn import chunk_linear_attn

    return chunk_linear_attn(**to_time_major(q=x.q, k=x.k, v=x.v), scale=1.0, normalize=False)[0]


def fla_gla(x: KernelTensors) -> Tensor:
    from fla.ops.gla import chunk_gla

    return chunk_gla(**to_time_major(q=x.q, k=x.k, v=x.v, g=x.channel_log_keep), scale=1.0)[0]


def fla_kda(x: KernelTensors) -> Tensor:
    from fla.ops.kda import chunk_kda

    tensors = to_time_major(q=x.q, k=x.k, v=x.v, g=x.channel_log_keep)
    return chunk_kda(**tensors, beta=x.beta.mT, scale=1.0)[0]


def fla_gdn2(x: KernelTensors) -> Tensor:
    from fla.ops.gdn2 import chunk_gdn2

    tensors = to_time_major(q=x.q, k=x.k, v=x.v, g=x.channel_log_keep, b=x.channel_erase, w=x.channel_write)
    return chunk_gdn2(**tensors, scale=1.0)[0]


def fla_comba(x: KernelTensors) -> Tensor:
    from fla.ops.comba import chunk_comba

    tensors = to_time_major(q=x.q, k=x.k, v=x.v, p=x.lookup)
    return chunk_comba(**tensors, g=x.log_keep.mT, beta=x.beta.mT, scale=1.0)[0]


def fla_dplr(x: KernelTensors) -> Tensor:
    from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule

    tensors = to_time_major(q=x.q, k=x.k, v=x.v, a=x.lookup, b=-x.k, gk=x.channel_log_keep)
    return chunk_dplr_delta_rule(**tensors, scale=1.0)[0]


def to_time_major(**tensors: Tensor) -> dict[str, Tensor]:
    """Transpose [B, H, T, D] to [B, T, H, D], the layout of fla and of the memory."""
    return {name: x.transpose(1, 2) for name, x in tensors.items()}


FLA_KERNELS: dict[str, KernelFunction] = {
    "delta": fla_delta,
    "gated_delta": fla_gated_delta,
    "linear_attention": fla_linear_attention,
    "gla": fla_gla,
    "kda": fla_kda,
    "gdn2": fla_gdn2,
    "comba": fla_comba,
    "dplr": fla_dplr,
}
