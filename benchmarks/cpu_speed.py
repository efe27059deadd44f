"""Speed of the two memories on a CPU, compared with other libraries and with the limit of the processor.

    python benchmarks/cpu_speed.py [--json] [--rounds 7] [--only scan]

Forward and backward pass unless noted otherwise, float32, 2 threads.  The implementations of a row run alternately, so
that other load on the machine affects all of them, and the best round of each counts.  Needs the `gpu` extra, because
fla needs triton even for its plain PyTorch functions.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault(
    "OMP_WAIT_POLICY", "active"
)  # spinning threads wake up faster, if nothing else runs on the machine

import hqlt_lab as lab  # noqa: I001
import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.attention.scheduled_softmax import attend
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.gates import Gates
from hqlt_lab.process_settings import disable_malloc_trim

Run = Callable[[], Any]
MIN_ROUND_SECONDS = 0.25


class Row(NamedTuple):
    """One line of the table: a ratio and its goal, with `direction` "at least" or "at most"."""

    label: str
    ratio: float
    direction: str
    goal: float

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.goal if self.direction == "at least" else self.ratio <= self.goal


def best_seconds(rounds: int, *runs: Run) -> list[float]:
    """Return the best time of each function over alternating rounds of at least MIN_ROUND_SECONDS."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()  # warm-up
    for _ in range(rounds):
        for run, run_times in zip(runs, times, strict=True):
            deadline = time.perf_counter() + MIN_ROUND_SECONDS
            while True:
                start = time.perf_counter()
                run()
                run_times.append(time.perf_counter() - start)
                if time.perf_counter() > deadline:
                    break
    return [min(run_times) for run_times in times]


def random_inputs(batch: int, heads: int, tokens: int, size: int) -> list[Tensor]:
    """Return random q, k, v, beta and log_keep, shaped as the inputs of a layer's scan."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, tokens, size) for _ in range(3))
    beta, log_keep = torch.rand(batch, heads, tokens), -0.1 * torch.rand(batch, heads, tokens)
    return [x.requires_grad_() for x in (q, F.normalize(k, dim=-1), v, beta, log_keep)]


def forward_backward(scan: Callable[..., Tensor], inputs: list[Tensor]) -> Run:
    """Return a function that runs one forward and backward pass."""

    def run() -> None:
        output = scan(*inputs)
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)

    return run


def delta_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked_scan(q, k, v, Gates(erase=beta, write=beta))[0]


def gated_delta_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked_scan(q, k, v, Gates(log_keep, beta, beta))[0]


def linear_attention_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked_scan(q, k, v, Gates())[0]


def transformers_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor | None) -> Tensor:
    """Run the PyTorch fallback of transformers, unwrapped, because its public name would use fla's kernels."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    keep = torch.zeros_like(beta) if log_keep is None else log_keep
    time_major = (x.transpose(1, 2) for x in (q, k, v, keep, beta))
    return torch_chunk_gated_delta_rule.__wrapped__(*time_major)[0].transpose(1, 2)


def fla_naive_scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.delta_rule.naive import delta_rule_chunkwise

    return delta_rule_chunkwise(q, k, v, beta)[0]


def measure_scans(rounds: int) -> list[Row]:
    """Compare the delta scan with other implementations, with the matmul limit, and with our other update rules."""
    batched, long, wide = random_inputs(4, 4, 2048, 64), random_inputs(1, 4, 16384, 64), random_inputs(1, 8, 2048, 128)
    title = "delta scan B4 H4 T2048 D64"
    runs = (
        forward_backward(scan, batched)
        for scan in (delta_scan, transformers_scan, fla_naive_scan, gated_delta_scan, linear_attention_scan)
    )
    delta, transformers, fla_naive, gated_delta, linear_attention = best_seconds(rounds, *runs)
    rows = [
        Row(f"{title}: transformers' time", transformers / delta, "at least", 3.5),
        Row(f"{title}: time of fla's plain function", fla_naive / delta, "at least", 1.0),
        Row("gated_delta scan: time against delta", gated_delta / delta, "at most", 1.5),
        Row("linear_attention scan: time against delta", linear_attention / delta, "at most", 0.6),
    ]
    delta, transformers = best_seconds(
        max(rounds // 2, 1), forward_backward(delta_scan, long), forward_backward(transformers_scan, long)
    )
    rows.append(Row("delta scan B1 H4 T16384 D64: transformers' time", transformers / delta, "at least", 12.0))
    matrix = torch.randn(2048, 2048)
    delta, product = best_seconds(rounds, forward_backward(delta_scan, wide), lambda: matrix @ matrix)
    limit = 3 * 8 * 2048 * (8 * 32 * 128 + 6 * 128**2) / (2 * 2048**3 / product)
    rows.append(Row("delta scan B1 H8 T2048 D128: time against the matmul limit", delta / limit, "at most", 2.3))
    short_run, long_run = (
        forward_backward(delta_scan, random_inputs(1, 4, 2048, 64)),
        forward_backward(delta_scan, random_inputs(1, 4, 65536, 64)),
    )
    short_seconds, long_seconds = best_seconds(rounds, short_run, long_run)
    rows.append(
        Row("delta scan: cost per token, T 65536 against 2048", long_seconds / (short_seconds * 32), "at most", 1.3)
    )
    return rows


def measure_attention(rounds: int) -> list[Row]:
    q, k, v, *_ = random_inputs(1, 4, 16384, 64)
    window = forward_backward(lambda q, k, v: attend(q, k, v, Schedule(window=64)), [q, k, v])
    full = forward_backward(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v])
    window_seconds, full_seconds = best_seconds(max(rounds // 2, 1), window, full)
    return [Row("softmax T16384, window 64: time of full causal SDPA", full_seconds / window_seconds, "at least", 25.0)]


@torch.no_grad()
def measure_decoding(rounds: int) -> list[Row]:
    """Compare the time per token and the size of the state of a hybrid model after 1,024 and 65,536 tokens."""
    model = lab.build_model(vocabulary=256, width=256, heads=4, layers=2)
    states, tokens = {}, torch.randint(256, (1, 65536))
    for context in (1024, 65536):
        states[context] = model(tokens[:, :context])[1]

    def make_decode_run(context: int) -> Run:
        def run() -> None:
            state = states[context]
            for position in range(64):
                _, state = model(tokens[:, position : position + 1], state)

        return run

    short_seconds, long_seconds = best_seconds(rounds, make_decode_run(1024), make_decode_run(65536))
    short_bytes, long_bytes = (
        sum(x.nbytes for x in torch.utils._pytree.tree_leaves(states[context]) if x is not None) for context in states
    )
    return [
        Row("decoding at context 65536 against 1024: time per token", long_seconds / short_seconds, "at most", 1.1),
        Row("decoding at context 65536 against 1024: bytes of the state", long_bytes / short_bytes, "at most", 1.0),
    ]


def measure_training(rounds: int) -> list[Row]:
    """Compare a training step of the paper's parity model with our scan and with that of transformers."""
    from hqlt_lab.components.update_rules.delta import Delta
    from hqlt_lab.experiment.load_experiment import load_experiment
    from hqlt_lab.registry import build

    experiment = load_experiment("experiments/paper/expressivity_parity.yaml")
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    task = build("task", cell.task)
    batch = task.get_examples("train", 0, 0, cell.train.batch_size)
    model = lab.build_model(**cell.model, vocabulary=task.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters())

    def train_step() -> None:
        logits, _ = model(batch.tokens)
        F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1).backward()
        optimizer.step()
        optimizer.zero_grad()

    def train_step_transformers() -> None:
        original_scan, Delta.scan = Delta.scan, transformers_rule_scan  # type: ignore[method-assign]
        train_step()
        Delta.scan = original_scan  # type: ignore[method-assign]

    with_ours, with_transformers = best_seconds(rounds, train_step, train_step_transformers)
    return [
        Row(
            "training step of the paper's parity model: time with transformers' scan",
            with_transformers / with_ours,
            "at least",
            1.3,
        )
    ]


def transformers_rule_scan(
    self: Any, q: Tensor, k: Tensor, v: Tensor, gates: Gates, state: Any, context: Any
) -> tuple[Tensor, Tensor]:
    """Replacement for `Delta.scan`; undoes the scaling of q, which the function of transformers applies itself."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    unscaled_q, log_keep = q * q.shape[-1] ** 0.5, torch.zeros_like(gates.erase)
    time_major = (x.transpose(1, 2) for x in (unscaled_q, k, v, log_keep, gates.erase))
    output, state = torch_chunk_gated_delta_rule.__wrapped__(*time_major, output_final_state=True)
    return output.transpose(1, 2), state


SECTIONS = {
    "scan": measure_scans,
    "attention": measure_attention,
    "decoding": measure_decoding,
    "training": measure_training,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=SECTIONS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    disable_malloc_trim()
    rows = [
        row for name, measure in SECTIONS.items() if options.only in (None, name) for row in measure(options.rounds)
    ]
    if options.json:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"rows": [row._asdict() | {"reached": row.is_reached} for row in rows], "peak_bytes": peak}))
        return
    for row in rows:
        note = "" if row.is_reached else "   not reached"
        print(f"{row.label:76}{row.ratio:8.2f}   {row.direction} {row.goal}{note}")


if __name__ == "__main__":
    main()
