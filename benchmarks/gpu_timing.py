"""One case of `gpu.py` to one row: built, warmed up, timed, and its failure told in a sentence."""

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from gpu_cases import SCALES, Case, Machine, in_the_paper
from torch import Tensor

WARM_UP = 3  # the first calls compile and tune kernels
Row = dict[str, Any]


def measured(case: Case, machine: Machine, batch: int | None, rounds: int) -> Row:
    """Its row; a model whose rows were not asked for gets half as many until they fit."""
    rows, too_many = batch or SCALES[case.size].rows, []
    while True:
        row = attempt(case, machine, rows, rounds)
        if "out of memory" not in row.get("error", "") or batch or case.kind == "kernel" or rows == 1:
            return row | ({"did_not_fit": too_many} if too_many else {})
        too_many.append(rows)
        rows //= 2


def attempt(case: Case, machine: Machine, rows: int, rounds: int) -> Row:
    """Once.  Whatever goes wrong is told, so that the other cases are measured; what it held is given back."""
    row: Row = {"kind": case.kind, "size": case.size, "name": case.name, "rows": rows}
    try:
        row |= taken(case, machine, rows, rounds)
    except torch.OutOfMemoryError:
        row["error"] = f"out of memory with {rows} rows"
    except Exception as error:
        told = str(error).strip().splitlines() or [""]
        row["error"] = f"{type(error).__name__}: {told[0]}"
    gc.collect()
    if machine.device == "cuda":
        torch.cuda.empty_cache()
    return row


def taken(case: Case, machine: Machine, rows: int, rounds: int) -> Row:
    """What there is to tell of it when all goes well."""
    if machine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    prepare(case, machine)
    made = case.make(machine, rows)
    prepare(case, machine)  # again, for what was imported just now
    seconds, answer = best(made.run, rounds, machine)
    row = made.told | {"seconds": seconds, "tokens_per_second": made.tokens / seconds}
    row |= {"peak_bytes": torch.cuda.max_memory_allocated()} if machine.device == "cuda" else {}
    # a model's loss, or the mean square of a kernel's answer: a number that is not one would be a fault
    return row | {"answer": answer, "paper_tokens_per_second": in_the_paper(case)}


def prepare(case: Case, machine: Machine) -> None:
    """Let Triton's kernels take CPU tensors; on a GPU there is nothing to prepare."""
    if machine.device != "cuda" and case.triton:
        from hqlt_lab.check.interpreter import interpret

        interpret()


def best(run: Callable[[], Tensor], rounds: int, machine: Machine) -> tuple[float, float]:
    """Seconds of the fastest of several calls, and what the last one answered; on a CPU one call is enough."""
    if machine.device == "cpu":
        began = time.perf_counter()
        answer = run().item()
        return time.perf_counter() - began, answer
    for _ in range(WARM_UP):
        run()
    seconds = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        last = run()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return min(seconds), last.item()
