"""Results that several processes write into one cell's folder at the same time: none is lost."""

import multiprocessing
from pathlib import Path

from hqlt_lab.rundir.evaluations import (
    LongContextCurve,
    list_evaluations,
    read_long_context_curves,
    write_evaluation,
    write_long_context_curves,
)
from hqlt_lab.rundir.lm_eval_results import EvalProtocol, TaskResult, add_task_result, read_task_results

NUM_WRITERS, WRITES_PER_PROCESS = 4, 8


def write_results(folder: Path, writer: int, barrier: "multiprocessing.synchronize.Barrier") -> None:
    """Write what `hqlt evaluate` writes into a cell's folder, without a model."""
    barrier.wait()
    for number in range(WRITES_PER_PROCESS):
        name = f"{writer}.{number}"
        write_evaluation(folder, name, None, {"accuracy": 1.0})
        protocol = EvalProtocol(harness="0", length=8, limit=None, source="")
        add_task_result(folder, TaskResult(task=name, lesion=None, protocol=protocol, metrics={"acc": 1.0}))
        write_long_context_curves(folder, [LongContextCurve(name=name, axis="position", points=[(1, 1.0)])])


def test_processes_that_evaluate_one_cell_concurrently_lose_no_result(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(NUM_WRITERS)
    processes = [
        context.Process(target=write_results, args=(tmp_path, writer, barrier)) for writer in range(NUM_WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * NUM_WRITERS
    names = sorted(f"{writer}.{number}" for writer in range(NUM_WRITERS) for number in range(WRITES_PER_PROCESS))
    assert sorted(evaluation.split for evaluation in list_evaluations(tmp_path)) == names
    assert sorted(result.task for result in read_task_results(tmp_path)) == names
    assert sorted(curve.name for curve in read_long_context_curves(tmp_path)) == names
