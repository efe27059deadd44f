"""Measure one case of `gpu.py`: build it, warm it up, time it, and return a row with the results or the error."""

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from gpu_cases import SCALES, Case, Machine, paper_tokens_per_second
from torch import Tensor

WARM_UP_CALLS = 3  # the first calls compile and tune kernels
Row = dict[str, Any]


def measure_case(case: Case, machine: Machine, batch: int | None, rounds: int) -> Row:
    """Measure a case; without an explicit batch size, a model gets half as many rows until they fit into memory."""
    rows, too_many = batch or SCALES[case.size].rows, []
    while True:
        row = try_case(case, machine, rows, rounds)
        if "out of memory" not in row.get("error", "") or batch or case.kind == "kernel" or rows == 1:
            return row | ({"did_not_fit": too_many} if too_many else {})
        too_many.append(rows)
        rows //= 2


def try_case(case: Case, machine: Machine, rows: int, rounds: int) -> Row:
    """Measure a case once; an error is returned in the row, so that the other cases are still measured."""
    row: Row = {"kind": case.kind, "size": case.size, "name": case.name, "rows": rows}
    try:
        row |= time_case(case, machine, rows, rounds)
    except torch.OutOfMemoryError:
        row["error"] = f"out of memory with {rows} rows"
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        row["error"] = f"{type(error).__name__}: {lines[0]}"
    gc.collect()
    if machine.device == "cuda":
        torch.cuda.empty_cache()
    return row


def time_case(case: Case, machine: Machine, rows: int, rounds: int) -> Row:
    """Prepare and time a case, and return its results."""
    if machine.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    enable_interpreter(case, machine)
    prepared = case.make(machine, rows)
    enable_interpreter(case, machine)  # again, for kernels that were imported just now
    seconds, answer = best_seconds(prepared.run, rounds, machine)
    row = prepared.details | {"seconds": seconds, "tokens_per_second": prepared.tokens / seconds}
    row |= {"peak_bytes": torch.cuda.max_memory_allocated()} if machine.device == "cuda" else {}
    # a model's loss, or the mean square of a kernel's output: NaN would show a fault
    return row | {"answer": answer, "paper_tokens_per_second": paper_tokens_per_second(case)}


def enable_interpreter(case: Case, machine: Machine) -> None:
    """Let Triton kernels accept CPU tensors; does nothing on a GPU."""
    if machine.device != "cuda" and case.uses_triton:
        from hqlt_lab.check.triton_interpreter import enable_triton_interpreter

        enable_triton_interpreter()


def best_seconds(run: Callable[[], Tensor], rounds: int, machine: Machine) -> tuple[float, float]:
    """Return the seconds of the fastest of several calls, and the last result; on a CPU a single call."""
    if machine.device == "cpu":
        start_time = time.perf_counter()
        answer = run().item()
        return time.perf_counter() - start_time, answer
    for _ in range(WARM_UP_CALLS):
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
