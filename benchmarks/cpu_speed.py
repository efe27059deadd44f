"""How fast the two memories are on a CPU, against other people's code and against what the processor can do.

    python benchmarks/cpu_speed.py [--json] [--rounds 7] [--only scan]

Forward and backward together unless said otherwise, float32, 2 threads.  The contenders of a row take turns, and the
best round of each counts: what else runs on the machine then hits all of them.  Needs the `gpu` extra: fla needs triton
even for its plain functions.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "active")  # alone on the machine, threads wait faster by spinning

import hqlt_lab as lab  # noqa: I001
import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.attention import attend
from hqlt_lab.ops.chunked import chunked
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Gates
from hqlt_lab.train.heap import keep_freed_memory

Run = Callable[[], Any]
TURN = 0.25  # seconds


class Row(NamedTuple):
    """One line of the table: `better` says on which side of the goal it should be."""

    what: str
    ratio: float
    better: str
    goal: float

    @property
    def reached(self) -> bool:
        return self.ratio >= self.goal if self.better == "at least" else self.ratio <= self.goal


def best(rounds: int, *runs: Run) -> list[float]:
    """Seconds of each, the best of several rounds in turns; in a turn, what is quick is run for a quarter second."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()  # warms up
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            until = time.perf_counter() + TURN
            while True:
                start = time.perf_counter()
                run()
                taken.append(time.perf_counter() - start)
                if time.perf_counter() > until:
                    break
    return [min(taken) for taken in times]


def text(batch: int, heads: int, tokens: int, size: int) -> list[Tensor]:
    """q, k, v, beta and log-keep, as a layer would give them."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, tokens, size) for _ in range(3))
    beta, log_keep = torch.rand(batch, heads, tokens), -0.1 * torch.rand(batch, heads, tokens)
    return [x.requires_grad_() for x in (q, F.normalize(k, dim=-1), v, beta, log_keep)]


def step(scan: Callable[..., Tensor], inputs: list[Tensor]) -> Run:
    """One forward and backward."""

    def run() -> None:
        answer = scan(*inputs)
        torch.autograd.grad(answer, inputs, torch.ones_like(answer), allow_unused=True)

    return run


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked(q, k, v, Gates(erase=beta, write=beta))[0]


def gated_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked(q, k, v, Gates(log_keep, beta, beta))[0]


def linear_attention(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    return chunked(q, k, v, Gates())[0]


def of_transformers(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor | None) -> Tensor:
    """The plain torch function that transformers falls back to; its public name would pick fla's kernels."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    keep = torch.zeros_like(beta) if log_keep is None else log_keep
    turned = (x.transpose(1, 2) for x in (q, k, v, keep, beta))
    return torch_chunk_gated_delta_rule.__wrapped__(*turned)[0].transpose(1, 2)


def of_fla(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_keep: Tensor) -> Tensor:
    from fla.ops.delta_rule.naive import delta_rule_chunkwise

    return delta_rule_chunkwise(q, k, v, beta)[0]


def scans(rounds: int) -> list[Row]:
    """The scan against its peers, its limit, and its siblings."""
    many, long, wide = text(4, 4, 2048, 64), text(1, 4, 16384, 64), text(1, 8, 2048, 128)
    same = "delta scan B4 H4 T2048 D64"
    runs = (step(scan, many) for scan in (delta, of_transformers, of_fla, gated_delta, linear_attention))
    ours, theirs, naive, gated, linear = best(rounds, *runs)
    rows = [
        Row(f"{same}: transformers' time", theirs / ours, "at least", 3.5),
        Row(f"{same}: time of fla's plain function", naive / ours, "at least", 1.0),
        Row("gated_delta scan: time against delta", gated / ours, "at most", 1.5),
        Row("linear_attention scan: time against delta", linear / ours, "at most", 0.6),
    ]
    ours, theirs = best(max(rounds // 2, 1), step(delta, long), step(of_transformers, long))
    rows.append(Row("delta scan B1 H4 T16384 D64: transformers' time", theirs / ours, "at least", 12.0))
    matrix = torch.randn(2048, 2048)
    ours, product = best(rounds, step(delta, wide), lambda: matrix @ matrix)
    limit = 3 * 8 * 2048 * (8 * 32 * 128 + 6 * 128**2) / (2 * 2048**3 / product)
    rows.append(Row("delta scan B1 H8 T2048 D128: time against the matmul limit", ours / limit, "at most", 2.3))
    short, very_long = step(delta, text(1, 4, 2048, 64)), step(delta, text(1, 4, 65536, 64))
    few, much = best(rounds, short, very_long)
    rows.append(Row("delta scan: cost per token, T 65536 against 2048", much / (few * 32), "at most", 1.3))
    return rows


def attention(rounds: int) -> list[Row]:
    q, k, v, *_ = text(1, 4, 16384, 64)
    window = step(lambda q, k, v: attend(q, k, v, Schedule(window=64)), [q, k, v])
    full = step(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v])
    ours, theirs = best(max(rounds // 2, 1), window, full)
    return [Row("softmax T16384, window 64: time of full causal SDPA", theirs / ours, "at least", 25.0)]


@torch.no_grad()
def decoding(rounds: int) -> list[Row]:
    """Seconds per token of a hybrid that has read 1,024 or 65,536 tokens, and what its state weighs."""
    model = lab.build_model(vocabulary=256, width=256, heads=4, layers=2)
    states, tokens = {}, torch.randint(256, (1, 65536))
    for context in (1024, 65536):
        states[context] = model(tokens[:, :context])[1]

    def decode(context: int) -> Run:
        def run() -> None:
            state = states[context]
            for place in range(64):
                _, state = model(tokens[:, place : place + 1], state)

        return run

    near, far = best(rounds, decode(1024), decode(65536))
    small, large = (sum(x.nbytes for x in torch.utils._pytree.tree_leaves(states[n]) if x is not None) for n in states)
    return [
        Row("decoding at context 65536 against 1024: time per token", far / near, "at most", 1.1),
        Row("decoding at context 65536 against 1024: bytes of the state", large / small, "at most", 1.0),
    ]


def training(rounds: int) -> list[Row]:
    """One whole step of the paper's parity model, its scan ours or transformers'."""
    from hqlt_lab.components.update_rules.delta import Delta
    from hqlt_lab.experiment.experiment import load
    from hqlt_lab.registry import build

    experiment = load("experiments/paper/expressivity_parity.yaml")
    cell = experiment.cell(experiment.arms[0], {}, 0)
    task = build("task", cell.task)
    batch = task.examples("train", 0, 0, cell.train.batch_size)
    model = lab.build_model(**cell.model, vocabulary=task.vocabulary)
    optimiser = torch.optim.AdamW(model.parameters())

    def learn() -> None:
        logits, _ = model(batch.tokens)
        F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1).backward()
        optimiser.step()
        optimiser.zero_grad()

    def with_theirs() -> None:
        ours, Delta.scan = Delta.scan, their_scan  # type: ignore[method-assign]
        learn()
        Delta.scan = ours  # type: ignore[method-assign]

    ours, theirs = best(rounds, learn, with_theirs)
    return [
        Row("training step of the paper's parity model: time with transformers' scan", theirs / ours, "at least", 1.3)
    ]


def their_scan(
    self: Any, q: Tensor, k: Tensor, v: Tensor, gates: Gates, state: Any, course: Any
) -> tuple[Tensor, Tensor]:
    """In place of a rule's own; q comes scaled already, which their function does again."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    turned = (x.transpose(1, 2) for x in (q * q.shape[-1] ** 0.5, k, v, torch.zeros_like(gates.erase), gates.erase))
    read, state = torch_chunk_gated_delta_rule.__wrapped__(*turned, output_final_state=True)
    return read.transpose(1, 2), state


PARTS = {"scan": scans, "attention": attention, "decoding": decoding, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=PARTS)
    asked = parser.parse_args()
    torch.set_num_threads(2)
    keep_freed_memory()
    rows = [row for name, part in PARTS.items() if asked.only in (None, name) for row in part(asked.rounds)]
    if asked.json:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"rows": [row._asdict() | {"reached": row.reached} for row in rows], "peak_bytes": peak}))
        return
    for row in rows:
        told = "" if row.reached else "   not reached"
        print(f"{row.what:76}{row.ratio:8.2f}   {row.better} {row.goal}{told}")


if __name__ == "__main__":
    main()
