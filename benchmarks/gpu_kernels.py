"""The two memories alone, forward and backward, as `gpu.py` times them: each backend on what a layer would give it.

Queries and keys of the fast weights are float32, as feature maps leave them, and values of the run's precision.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpu_cases import SCALES, Case, Machine, Made
from torch import Tensor

from hqlt_lab.ops.attention import attend
from hqlt_lab.ops.backends import ATTENTIONS, SCANS, TRUTHS
from hqlt_lab.ops.linear import scan
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Gates, precise

Work = Callable[..., Tensor]  # q, k, v, beta, log_keep -> the answer
RULES: dict[str, Callable[[Tensor, Tensor], Gates]] = {
    "delta": lambda beta, log_keep: Gates(erase=beta, write=beta),
    "gated_delta": lambda beta, log_keep: Gates(log_keep, beta, beta),
    "linear_attention": lambda beta, log_keep: Gates(),
}
SCHEDULES = {"window 64": Schedule(window=64), "blocks of 64": Schedule(block=64), "everything": Schedule()}


def kernel_cases(size: str) -> Iterator[Case]:
    """Scans by every backend and by fla called directly; then softmax by every backend."""
    for rule in RULES:
        for backend in SCANS:
            if backend not in TRUTHS:  # thousands of times slower
                work = partial(make, by_scan(rule, backend), precise, size)
                yield Case("kernel", size, f"{rule} scan by {backend}", backend == "fla", work)
        work = partial(make, DIRECTLY[rule], in_values_precision, size)
        yield Case("kernel", size, f"{rule} scan, fla's own function", True, work)
    for sees in SCHEDULES:
        for backend in ATTENTIONS:
            if backend not in TRUTHS:
                work = partial(make, by_attend(sees, backend), in_values_precision, size)
                yield Case("kernel", size, f"softmax over {sees} by {backend}", False, work)


def in_values_precision(tensor: Tensor) -> Tensor:
    return tensor


def make(work: Work, keys: Callable[[Tensor], Tensor], size: str, machine: Machine, rows: int) -> Made:
    """Forward and backward of all that needs a gradient."""
    scale = SCALES[size]
    inputs = text(rows, scale.heads, scale.length, scale.width // scale.heads, machine, keys)

    def run() -> Tensor:
        with torch.autocast(machine.device, machine.dtype):
            answer = work(*inputs)
        torch.autograd.grad(answer, inputs, torch.ones_like(answer), allow_unused=True)
        return answer.detach().float().square().mean()

    shape = f"B{rows} H{scale.heads} T{scale.length} D{scale.width // scale.heads}"
    return Made(run, {"shape": shape}, rows * scale.length)


def text(
    rows: int, heads: int, tokens: int, channels: int, machine: Machine, keys: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """q, k, v, beta and log-keep; in memory the heads of a token lie together, as a projection leaves them."""
    torch.manual_seed(0)
    put: dict[str, Any] = {"device": machine.device, "dtype": machine.dtype}
    q, k, v = (torch.randn(rows, tokens, heads, channels, **put).transpose(1, 2) for _ in range(3))
    beta = torch.rand(rows, tokens, heads, **put).mT
    log_keep = -0.1 * torch.rand(rows, tokens, heads, device=machine.device).mT
    made = (keys(F.normalize(q, dim=-1)), keys(F.normalize(k, dim=-1)), v, beta, log_keep)
    return [x.detach().requires_grad_() for x in made]


def by_scan(rule: str, backend: str) -> Work:
    def work(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
        return scan(q, k, v, RULES[rule](beta, log_keep), backend=backend)[0]

    return work


def by_attend(sees: str, backend: str) -> Work:
    def work(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
        return attend(q, k, v, SCHEDULES[sees], backend=backend)

    return work


def fla_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.delta_rule import chunk_delta_rule

    return chunk_delta_rule(*turned(q, k, v), beta=beta.mT, scale=1.0)[0]


def fla_gated_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return chunk_gated_delta_rule(*turned(q, k, v), g=log_keep.mT, beta=beta.mT, scale=1.0)[0]


def fla_linear_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.linear_attn import chunk_linear_attn

    return chunk_linear_attn(*turned(q, k, v), scale=1.0, normalize=False)[0]


def turned(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[B, H, T, D] -> [B, T, H, D], as fla has it and as they lie in memory."""
    return tuple(x.transpose(1, 2) for x in tensors)


DIRECTLY = {"delta": fla_delta, "gated_delta": fla_gated_delta, "linear_attention": fla_linear_attention}
