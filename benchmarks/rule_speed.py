"""Speed of the general linear scan: decays per channel and lookup keys of their own, against gated_delta.

    python benchmarks/rule_speed.py [--rounds 8] [--only large]

Processor time of forward and backward in float32 on one thread, for the two shapes of `SHAPES`.  The candidates run
alternately, so that other load on the machine affects all of them, and the best round of each counts.  Needs the `gpu`
extra, because fla needs triton even for its plain PyTorch functions.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import hqlt_lab as lab  # noqa: F401, I001
import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.gates import Gates
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.process_settings import disable_malloc_trim

MIN_ROUND_SECONDS = 0.3


class Shape(NamedTuple):
    batch: int
    heads: int
    tokens: int
    channels: int

    def __str__(self) -> str:
        return f"B{self.batch} H{self.heads} T{self.tokens} D{self.channels}"


SHAPES = {"large": Shape(4, 4, 2048, 64), "small": Shape(32, 2, 64, 16)}


class ScanInputs(NamedTuple):
    """Random inputs; a candidate uses those that it needs."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, T, K], unit vectors
    v: Tensor  # [B, H, T, V]
    second_k: Tensor  # another unit key per token
    log_keep: Tensor  # [B, H, T, K]
    head_log_keep: Tensor  # [B, H, T]
    beta: Tensor  # [B, H, T]
    channel_beta: Tensor  # [B, H, T, K]


def make_inputs(shape: Shape) -> ScanInputs:
    torch.manual_seed(0)
    q, k, v, second_k = (torch.randn(*shape) for _ in range(4))
    log_keep, head_log_keep = -0.2 * torch.rand(*shape), -0.1 * torch.rand(*shape[:3])
    beta, channel_beta = torch.rand(*shape[:3]), torch.rand(*shape)
    tensors = (q, F.normalize(k, dim=-1), v, F.normalize(second_k, dim=-1), log_keep, head_log_keep, beta, channel_beta)
    return ScanInputs(*(x.requires_grad_() for x in tensors))


Candidate = Callable[[ScanInputs], Tensor]


def gated_delta(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(x.head_log_keep, x.beta, x.beta))[0]


def gla(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(log_keep=x.log_keep))[0]


def kda(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(x.log_keep, x.beta, x.beta))[0]


def gdn2(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(x.log_keep, x.channel_beta, x.channel_beta))[0]


def own_lookup_key(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(x.log_keep, early_lookup=x.second_k))[0]


def comba(x: ScanInputs) -> Tensor:
    return chunked_scan(x.q, x.k, x.v, Gates(x.head_log_keep, x.beta, x.beta, early_lookup=0.7 * x.k))[0]


def rwkv7(x: ScanInputs) -> Tensor:
    """Two writes per token, of which the first looks up."""
    keys = torch.stack([x.channel_beta * x.second_k, x.k], 3).flatten(2, 3)
    values = torch.stack([torch.zeros_like(x.v), x.v], 3).flatten(2, 3)
    log_keep = torch.stack([x.log_keep, torch.zeros_like(x.log_keep)], 3).flatten(2, 3)
    return chunked_scan(x.q, keys, values, Gates(log_keep, early_lookup=x.second_k))[0]


def time_major(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def transformers_kda(x: ScanInputs) -> Tensor:
    """Run the PyTorch implementation of transformers, unwrapped, because its public name would use fla's kernels."""
    from transformers.models.kimi_linear import modeling_kimi_linear

    scan = modeling_kimi_linear.chunk_kimi_delta_attention
    scan = getattr(scan, "__wrapped__", scan)
    return scan(*time_major(x.q, x.k, x.v, x.log_keep, x.beta))[0].transpose(1, 2)


def fla_naive_kda(x: ScanInputs) -> Tensor:
    from fla.ops.kda.naive import naive_chunk_kda

    return naive_chunk_kda(*time_major(x.q, x.k, x.v, x.log_keep, x.beta))[0].transpose(1, 2)


# the most that a rule may take, as a multiple of gated_delta, for the large and the small shape
RULES: dict[Candidate, tuple[float, float]] = {
    gla: (1.4, 1.25),
    kda: (2.1, 1.95),
    gdn2: (2.1, 1.95),
    own_lookup_key: (2.25, 1.95),
    comba: (2.25, 1.95),
    rwkv7: (3.4, 3.05),
}
# the least that another implementation takes, as a multiple of ours
OTHERS: dict[Candidate, tuple[Candidate, float, float]] = {
    transformers_kda: (kda, 8.0, 5.0),
    fla_naive_kda: (kda, 10.0, 10.0),
}


def run_forward_backward(candidate: Candidate, inputs: ScanInputs) -> None:
    output = candidate(inputs)
    torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)


def best_seconds(candidates: list[Candidate], inputs: ScanInputs, rounds: int) -> dict[Candidate, float]:
    """Return the best processor time of each candidate over alternating rounds."""
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in candidates}
    for candidate in candidates:
        run_forward_backward(candidate, inputs)  # warm-up
    for _ in range(rounds):
        for candidate in candidates:
            deadline = time.perf_counter() + MIN_ROUND_SECONDS
            while True:
                start = time.process_time()
                run_forward_backward(candidate, inputs)
                times[candidate].append(time.process_time() - start)
                if time.perf_counter() > deadline:
                    break
    return {candidate: min(candidate_times) for candidate, candidate_times in times.items()}


def print_row(label: str, ratio: float, direction: str, goal: float) -> None:
    is_reached = ratio <= goal if direction == "at most" else ratio >= goal
    print(f"{label:72}{ratio:8.2f}   {direction} {goal:g}{'' if is_reached else '   not reached'}", flush=True)


def measure_rules(name: str, rounds: int) -> None:
    """Print the time of each rule as a multiple of gated_delta."""
    shape, column = SHAPES[name], list(SHAPES).index(name)
    seconds = best_seconds([gated_delta, *RULES], make_inputs(shape), rounds)
    for rule, goals in RULES.items():
        print_row(
            f"{rule.__name__} {shape}: time against gated_delta",
            seconds[rule] / seconds[gated_delta],
            "at most",
            goals[column],
        )


def measure_others(name: str, rounds: int) -> None:
    """Print the time of other implementations as a multiple of ours."""
    shape, column = SHAPES[name], list(SHAPES).index(name)
    for other, (ours, *goals) in OTHERS.items():
        seconds = best_seconds([ours, other], make_inputs(shape), max(rounds // 2, 1))
        ratio = seconds[other] / seconds[ours]
        print_row(f"{ours.__name__} {shape}: time of {other.__name__}", ratio, "at least", goals[column])


def measure_growth(rounds: int) -> None:
    """Print the cost per token of a long sequence as a multiple of that of a short one."""
    for rule in (gla, kda):
        short, long = (make_inputs(Shape(1, 2, tokens, 64)) for tokens in (2048, 65536))
        (short_seconds,) = best_seconds([rule], short, rounds).values()
        (long_seconds,) = best_seconds([rule], long, max(rounds // 3, 1)).values()
        print_row(
            f"{rule.__name__}: cost per token, T 65536 against 2048", long_seconds / short_seconds / 32, "at most", 1.3
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=SHAPES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_malloc_trim()
    warnings.filterwarnings("ignore", module="fla|transformers|triton")
    names = [options.only] if options.only else list(SHAPES)
    for name in names:
        measure_rules(name, options.rounds)
    for name in names:
        measure_others(name, options.rounds)
    measure_growth(options.rounds)


if __name__ == "__main__":
    main()
