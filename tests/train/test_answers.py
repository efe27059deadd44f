"""Answers of a cell that several processes give at once: each is kept."""

import multiprocessing
from pathlib import Path

from hqlt_lab.train.evaluations import evaluations_in, write_evaluation
from hqlt_lab.train.harness_file import Answer, Protocol, add_answer, answers_in
from hqlt_lab.train.long_context_file import Curve, curves_in, write_curves

WRITERS, EACH = 4, 8


def answer(folder: Path, writer: int, ready: "multiprocessing.synchronize.Barrier") -> None:
    """What `hqlt evaluate` does to a cell's folder, without the model."""
    ready.wait()
    for number in range(EACH):
        name = f"{writer}.{number}"
        write_evaluation(folder, name, None, {"accuracy": 1.0})
        protocol = Protocol(harness="0", length=8, limit=None, source="")
        add_answer(folder, Answer(task=name, lesion=None, protocol=protocol, metrics={"acc": 1.0}))
        write_curves(folder, [Curve(name=name, along="place", points=[(1, 1.0)])])


def test_processes_that_evaluate_one_cell_at_once_lose_no_answer(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(WRITERS)
    crew = [context.Process(target=answer, args=(tmp_path, writer, ready)) for writer in range(WRITERS)]
    for one in crew:
        one.start()
    for one in crew:
        one.join(60)
    assert [one.exitcode for one in crew] == [0] * WRITERS
    names = sorted(f"{writer}.{number}" for writer in range(WRITERS) for number in range(EACH))
    assert sorted(one.split for one in evaluations_in(tmp_path)) == names
    assert sorted(one.task for one in answers_in(tmp_path)) == names
    assert sorted(one.name for one in curves_in(tmp_path)) == names
