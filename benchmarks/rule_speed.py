"""Speed of the general linear scan: decays per channel and lookup keys of their own, against gated_delta.

    python benchmarks/rule_speed.py [--rounds 8] [--only large] [--before COMMIT]

Processor time of forward and backward in float32 on one thread, for the two shapes of `SHAPES`.  The candidates run
alternately, so that other load on the machine affects all of them, and the best round of each counts.  Needs the `gpu`
extra, because fla needs triton even for its plain PyTorch functions.

`--before` also measures gated_delta with the scan of an earlier commit, in a process of its own that takes turns with
this one, and compares every rule with it.  The commit must have `hqlt_lab/ops/chunked.py`: the last one is e520118,
whose chunks have 64 writes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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


def fla_naive_gdn2(x: ScanInputs) -> Tensor:
    from fla.ops.gdn2.naive import naive_chunk_gdn2

    return naive_chunk_gdn2(*time_major(x.q, x.k, x.v, x.log_keep, x.channel_beta, x.channel_beta))[0].transpose(1, 2)


def fla_naive_dplr(x: ScanInputs) -> Tensor:
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_chunkwise

    return dplr_chunkwise(x.q, x.k, x.v, -x.second_k, x.k, x.log_keep)[0]


# the most that a rule may take, for the large and the small shape, as a multiple of gated_delta with chunks of 64
RULES: dict[Candidate, tuple[float, float]] = {
    gated_delta: (0.9, 0.75),
    gla: (1.2, 0.9),
    kda: (1.8, 1.4),
    gdn2: (1.8, 1.4),
    own_lookup_key: (1.9, 1.4),
    comba: (1.9, 1.4),
    rwkv7: (2.9, 2.2),
}
# time of gated_delta with chunks of 32 as a multiple of that with chunks of 64, as expected of the goals above
CHUNK_GAIN = (0.85, 0.72)


class OtherImplementation(NamedTuple):
    """Another implementation, and the least that it takes as a multiple of ours."""

    run: Candidate
    ours: Candidate
    goals: tuple[float, float]
    batch: int | None = None  # of the large shape, if that needs too much memory


OTHERS = (
    OtherImplementation(transformers_kda, kda, (8.0, 5.0)),
    OtherImplementation(fla_naive_kda, kda, (10.0, 10.0)),
    OtherImplementation(fla_naive_gdn2, gdn2, (10.0, 10.0), batch=1),
    OtherImplementation(fla_naive_dplr, own_lookup_key, (10.0, 10.0), batch=1),
)


def run_forward_backward(candidate: Candidate, inputs: ScanInputs) -> None:
    output = candidate(inputs)
    torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)


def round_seconds(candidate: Candidate, inputs: ScanInputs) -> float:
    """Return the best processor time of a candidate in one round of at least MIN_ROUND_SECONDS."""
    times, deadline = [], time.perf_counter() + MIN_ROUND_SECONDS
    while not times or time.perf_counter() < deadline:
        start = time.process_time()
        run_forward_backward(candidate, inputs)
        times.append(time.process_time() - start)
    return min(times)


def best_seconds(
    candidates: list[Candidate], inputs: ScanInputs, rounds: int, baseline: Callable[[], float] | None = None
) -> tuple[dict[Candidate, float], float]:
    """Return the best processor time of each candidate over alternating rounds, and that of the baseline."""
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in candidates}
    baseline_times = [float("inf")]
    for candidate in candidates:
        run_forward_backward(candidate, inputs)  # warm-up
    for _ in range(rounds):
        for candidate in candidates:
            times[candidate].append(round_seconds(candidate, inputs))
        if baseline is not None:
            baseline_times.append(baseline())
    return {candidate: min(candidate_times) for candidate, candidate_times in times.items()}, min(baseline_times)


# gated_delta with the scan of an earlier commit: one line of input starts one round
EARLIER_SCAN_SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
from hqlt_lab.ops.chunked import CHUNK, chunked
from hqlt_lab.ops.steps import Gates

torch.set_num_threads(1)
q, k, v, log_keep, beta = inputs = [x.requires_grad_() for x in torch.load(sys.argv[2])]

def run():
    start = time.process_time()
    output = chunked(q, k, v, Gates(log_keep, beta, beta))[0]
    torch.autograd.grad(output, inputs, torch.ones_like(output))
    return time.process_time() - start

run()
print(CHUNK, flush=True)
for _ in sys.stdin:
    deadline, times = time.perf_counter() + float(sys.argv[3]), []
    while not times or time.perf_counter() < deadline:
        times.append(run())
    print(min(times), flush=True)
"""


@contextmanager
def earlier_gated_delta(commit: str, inputs: ScanInputs) -> Iterator[Callable[[], float]]:
    """Yield a function that measures one round of gated_delta with the scan of an earlier commit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(["git", "archive", commit], cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE)
        if archive.returncode:
            raise SystemExit(f"--before: {commit} is not a commit of this repository.")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        for package in ("components", "registry"):
            (folder / "hqlt_lab" / package).symlink_to(folder / package)
        torch.save(
            [x.detach() for x in (inputs.q, inputs.k, inputs.v, inputs.head_log_keep, inputs.beta)], folder / "x"
        )
        command = [sys.executable, "-c", EARLIER_SCAN_SCRIPT, name, str(folder / "x"), str(MIN_ROUND_SECONDS)]
        environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0"}  # as disable_malloc_trim
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            stdin, stdout = process.stdin, process.stdout
            if not stdout.readline():
                raise SystemExit(f"--before: the scan of {commit} could not be run.")

            def measure_round() -> float:
                print("round", file=stdin, flush=True)
                return float(stdout.readline())

            yield measure_round
            stdin.close()


def print_row(label: str, ratio: float, direction: str, goal: float) -> None:
    is_reached = ratio <= goal if direction == "at most" else ratio >= goal
    print(f"{label:72}{ratio:8.2f}   {direction} {goal:.3g}{'' if is_reached else '   not reached'}", flush=True)


def measure_rules(name: str, rounds: int, before: str | None) -> None:
    """Print the time of each rule as a multiple of gated_delta, now and at an earlier commit."""
    shape, column = SHAPES[name], list(SHAPES).index(name)
    inputs, rules = make_inputs(shape), list(RULES)
    if before is None:
        seconds, _ = best_seconds(rules, inputs, rounds)
    else:
        with earlier_gated_delta(before, inputs) as baseline:
            seconds, earlier_seconds = best_seconds(rules, inputs, rounds, baseline)
        for rule in rules:
            label = f"{rule.__name__} {shape}: time against gated_delta at {before}"
            print_row(label, seconds[rule] / earlier_seconds, "at most", RULES[rule][column])
    for rule in rules[1:]:
        label = f"{rule.__name__} {shape}: time against gated_delta"
        goal = RULES[rule][column] / CHUNK_GAIN[column]
        print_row(label, seconds[rule] / seconds[gated_delta], "at most", goal)


def measure_others(name: str, rounds: int) -> None:
    """Print the time of other implementations as a multiple of ours."""
    column = list(SHAPES).index(name)
    for other in OTHERS:
        shape = SHAPES[name]
        if name == "large" and other.batch is not None:
            shape = shape._replace(batch=other.batch)
        seconds, _ = best_seconds([other.ours, other.run], make_inputs(shape), max(rounds // 2, 1))
        ratio = seconds[other.run] / seconds[other.ours]
        label = f"{other.ours.__name__} {shape}: time of {other.run.__name__}"
        print_row(label, ratio, "at least", other.goals[column])


def measure_growth(rounds: int) -> None:
    """Print the cost per token of a long sequence as a multiple of that of a short one."""
    for rule in (gated_delta, gla, kda):
        short, long = (make_inputs(Shape(1, 2, tokens, 64)) for tokens in (2048, 65536))
        short_seconds = best_seconds([rule], short, rounds)[0][rule]
        long_seconds = best_seconds([rule], long, max(rounds // 3, 1))[0][rule]
        print_row(
            f"{rule.__name__}: cost per token, T 65536 against 2048", long_seconds / short_seconds / 32, "at most", 1.3
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--before", metavar="COMMIT")
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_malloc_trim()
    warnings.filterwarnings("ignore", module="fla|transformers|triton")
    names = [options.only] if options.only else list(SHAPES)
    for name in names:
        measure_rules(name, options.rounds, options.before)
    for name in names:
        measure_others(name, options.rounds)
    measure_growth(options.rounds)


if __name__ == "__main__":
    main()
