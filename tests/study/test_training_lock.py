"""A cell whose folder another process keeps locked: the holder is named, and the wait has a limit."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.rundir import cell_file
from hqlt_lab.study.coordinator import Coordinator
from hqlt_lab.study.executors._base import CellEvent
from hqlt_lab.study.executors.worker import make_job_spec, run_attempt
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.run_study import open_plan

from .conftest import NullSink, RecordingCallback

FREEZE = """
import os, signal, sys
from pathlib import Path
from hqlt_lab.rundir.cell_file import training_lock
with training_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def frozen_process(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that holds the training lock of a folder and is stopped by SIGSTOP."""
    folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", FREEZE, str(folder)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"locked\n"
            yield process
        finally:
            process.kill()


class InProcessExecutor:
    """Executor that trains one cell at a time in the calling process."""

    workers = 1

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Cell, Path, int]] = []

    def can_start(self, cell: Cell) -> bool:
        return not self.jobs

    def start_cell(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        self.jobs.append((key, cell, folder, attempt))

    def poll_events(self, timeout: float) -> Iterable[CellEvent]:
        key, *arguments = self.jobs.pop()
        job_spec = make_job_spec(*arguments, visible_devices="")
        yield CellEvent(key, *run_attempt(job_spec, lambda message: None, lambda: False))

    def request_prune(self, key: str) -> None: ...
    def interrupt_all(self) -> None: ...
    def kill_all(self) -> None: ...
    def close(self) -> None: ...


def test_a_cell_locked_by_a_frozen_process_is_left_out_and_its_holder_is_named(lab, monkeypatch):
    monkeypatch.setattr(cell_file, "TRAINING_LOCK_TIMEOUT", 0.2)
    experiment, store = lab.experiment("seeds: 2"), StudyStore(lab.runs, "tiny")
    with store.session():
        plan = open_plan(experiment, store)
        folders = [plan.cell_record(cell_ref).folder for cell_ref in plan.list_cells()]
        coordinator = Coordinator(plan, InProcessExecutor(), NullSink(), RecordingCallback(), lambda cell_ref: True)
        with frozen_process(folders[0]) as holder, pytest.raises(TrainingError) as error:
            coordinator.run_until_done()
    assert f"process {holder.pid} on {socket.gethostname()}" in str(error.value)
    locked, trained = lab.records(experiment)
    assert (locked.state, locked.attempts, trained.state) == ("waiting", 1, "done") and str(holder.pid) in locked.why
    lab.run(experiment)  # the process has ended, which released the lock
    assert lab.states(experiment) == {"done": 2}


class LockHandler(logging.Handler):
    """Log handler that calls a function at the first message."""

    def __init__(self, on_first_message: Callable[[], None]) -> None:
        super().__init__()
        self.on_first_message, self.messages = on_first_message, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        if len(self.messages) == 1:
            self.on_first_message()


def test_status_and_the_running_command_show_who_holds_the_lock(lab):
    experiment = lab.experiment("seeds: 1")
    folder = next(iter(lab.records(experiment))).folder
    with frozen_process(folder) as holder:
        seen = []

        def read_status_and_continue() -> None:
            seen.extend(lab.records(experiment))
            holder.send_signal(signal.SIGCONT)

        handler = LockHandler(read_status_and_continue)
        logging.getLogger("hqlt_lab.study.coordinator").addHandler(handler)
        try:
            lab.run(experiment)
        finally:
            logging.getLogger("hqlt_lab.study.coordinator").removeHandler(handler)
    [record] = seen
    assert record.state == "running" and f"process {holder.pid} on" in record.why
    assert len(handler.messages) == 1 and str(holder.pid) in handler.messages[0]
    assert lab.states(experiment) == {"done": 1} and lab.records(experiment)[0].why == ""


def test_a_wait_that_was_killed_does_not_show_in_the_next_attempt(tmp_path):
    (tmp_path / cell_file.LOCK_WAIT_FILE).touch()
    with cell_file.training_lock(tmp_path):
        assert cell_file.lock_wait_message(tmp_path) == ""
        assert f"process {os.getpid()} on" in cell_file.read_last_lock_holder(tmp_path)
