"""Process pool on this machine: workers are forked from a preloaded server, train cells, and are replaced when lost.

Python's forkserver imports the libraries once.  A worker is then a fork of it, which takes hundredths of a second
instead of ten seconds.  The server never initializes a GPU, so each worker can be restricted to the GPUs of its cell.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.executors import worker
from hqlt_lab.study.executors._base import MAX_STARTUP_FAILURES, STOP_TIMEOUT, CellEvent
from hqlt_lab.study.executors.resources import allocate_gpus, gpu_fraction
from hqlt_lab.train.interrupt import ignore_signal


@dataclass(eq=False)
class WorkerHandle:
    """The coordinator's view of one worker process."""

    process: BaseProcess
    pipe: Connection
    visible_gpus: tuple[int, ...] | None = None  # CUDA_VISIBLE_DEVICES of its cells; None: it had no cell yet
    cell_key: str | None = None  # the cell it trains
    gpu_request: Fraction = Fraction(0)
    started_at: float = 0.0
    has_reported: bool = False
    stop_requested: bool = False  # SIGTERM was sent; it is sent once, because a second one stops without a checkpoint
    kill_reason: str = ""  # set if the coordinator killed it


def cuda_visible_devices(gpus: tuple[int, ...]) -> str:
    """Return the worker's CUDA_VISIBLE_DEVICES for these GPU indices, relative to this process's own variable."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return ",".join(visible[index] if visible else str(index) for index in gpus)


def describe_exit(exitcode: int | None) -> str:
    """Return a sentence that explains the exit code of a worker."""
    if exitcode == -signal.SIGKILL:
        return "The worker process was killed, probably because the machine ran out of memory."
    if exitcode is not None and exitcode < 0:
        return f"The worker process was terminated by {signal.Signals(-exitcode).name}."
    return f"The worker process ended with exit code {exitcode}."


PIPE_ERRORS = (EOFError, OSError)


def start_forkserver() -> None:
    """Start the forkserver, which imports its libraries in the background."""
    forkserver.set_forkserver_preload(["hqlt_lab.study.executors.forkserver_preload"])
    with ignore_signal(signal.SIGINT):  # inherited by the server: Ctrl-C in the terminal would kill it during imports
        forkserver.ensure_running()


class LocalExecutor:
    """Trains up to `workers` cells at once in processes of this machine.

    `gpus_per_cell` returns the number of GPUs of a cell.
    """

    def __init__(
        self, workers: int, threads: int, gpus: int, gpus_per_cell: Callable[[Cell], float], time_limit: float | None
    ) -> None:
        self.workers, self.threads, self.gpus_per_cell, self.time_limit = workers, threads, gpus_per_cell, time_limit
        self.free_gpus = [Fraction(1)] * gpus
        self.worker_handles: list[WorkerHandle] = []
        self.startup_failures = 0
        self.mp_context = multiprocessing.get_context("forkserver")

    @property
    def running_keys(self) -> list[str]:
        """Keys of the cells that are being trained."""
        return [handle.cell_key for handle in self.worker_handles if handle.cell_key is not None]

    def can_start(self, cell: Cell) -> bool:
        """Return whether a worker and enough GPU capacity are free for the cell."""
        return (
            len(self.running_keys) < self.workers
            and allocate_gpus(gpu_fraction(self.gpus_per_cell(cell)), self.free_gpus) is not None
        )

    def start_cell(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Send a cell to a worker.  Requires `can_start(cell)`."""
        gpu_request = gpu_fraction(self.gpus_per_cell(cell))
        gpus = allocate_gpus(gpu_request, self.free_gpus)
        assert gpus is not None
        handle = self.acquire_worker(gpus)
        handle.cell_key, handle.gpu_request, handle.visible_gpus = key, gpu_request, gpus
        handle.started_at = time.monotonic()
        for index in gpus:
            self.free_gpus[index] -= min(gpu_request, Fraction(1))
        job_spec = worker.make_job_spec(cell, folder, attempt, cuda_visible_devices(gpus))
        with suppress(*PIPE_ERRORS):  # `poll_events` detects a worker that has just died
            handle.pipe.send(("train", job_spec))

    def acquire_worker(self, gpus: tuple[int, ...]) -> WorkerHandle:
        """Return an idle worker for these GPUs, or spawn one.

        CUDA reads CUDA_VISIBLE_DEVICES once per process, so a worker that has used other GPUs cannot be reused.
        """
        idle = [handle for handle in self.worker_handles if handle.cell_key is None and not handle.kill_reason]
        for handle in idle:
            if handle.visible_gpus in (None, gpus):
                return handle
        for handle in idle[: max(0, len(self.worker_handles) + 1 - self.workers)]:
            self.shutdown_worker(handle)
        return self.spawn_worker()

    def spawn_worker(self) -> WorkerHandle:
        """Fork a new worker from the forkserver."""
        start_forkserver()
        coordinator_end, worker_end = self.mp_context.Pipe()
        process = self.mp_context.Process(target=worker.worker_main, args=(worker_end, self.threads), daemon=True)
        try:
            process.start()
        except PIPE_ERRORS as error:
            raise TrainingError(
                "The fork server that starts worker processes has died. Run the same command again."
            ) from error
        worker_end.close()
        self.worker_handles.append(WorkerHandle(process, coordinator_end))
        return self.worker_handles[-1]

    def poll_events(self, timeout: float) -> Iterator[CellEvent]:
        """Yield the events since the last call; wait up to `timeout` seconds for the first."""
        self.kill_overdue()
        by_pipe = {handle.pipe: handle for handle in self.worker_handles}
        for pipe in wait(list(by_pipe), timeout):
            handle = by_pipe[pipe]  # type: ignore[index]
            try:
                kind, payload = handle.pipe.recv()
            except PIPE_ERRORS:
                yield from self.handle_worker_loss(handle)
                continue
            handle.has_reported, self.startup_failures = True, 0
            if kind == "ready" or handle.cell_key is None:
                continue
            event = CellEvent(handle.cell_key, kind, payload)
            if kind != "metrics":
                self.release_gpus(handle)
            if kind in worker.EXITING_EVENTS:  # the worker exits by itself
                self.worker_handles.remove(handle)
                handle.pipe.close()
            yield event

    def kill_overdue(self) -> None:
        """Kill workers whose cell exceeds the time limit; their pipe then breaks, as after a crash.

        Workers with unread messages are skipped: their cell may already have finished.
        """
        for handle in self.worker_handles:
            is_overdue = self.time_limit and handle.cell_key and time.monotonic() - handle.started_at > self.time_limit
            if is_overdue and not wait([handle.pipe], 0):
                handle.kill_reason = f"The cell exceeded the time limit of {self.time_limit:g} s."
                handle.process.kill()

    def handle_worker_loss(self, handle: WorkerHandle) -> Iterator[CellEvent]:
        """Remove a worker whose process is gone; yield the event for its cell, if it had one."""
        handle.process.join(STOP_TIMEOUT)
        self.worker_handles.remove(handle)
        handle.pipe.close()
        self.startup_failures += not handle.has_reported
        why = handle.kill_reason or describe_exit(handle.process.exitcode)
        if self.startup_failures >= MAX_STARTUP_FAILURES:
            raise TrainingError(
                f"{self.startup_failures} workers died during startup. {why} In a script, put the code under `if "
                "__name__ == '__main__':`, because workers import the script."
            )
        if handle.cell_key is not None:
            key = handle.cell_key
            self.release_gpus(handle)
            # a worker that died before its first message never started the cell, so the attempt does not count
            yield CellEvent(key, "lost" if handle.has_reported else "interrupted", {"why": why})

    def release_gpus(self, handle: WorkerHandle) -> None:
        """Mark the worker as idle and its GPU share as free."""
        for index in handle.visible_gpus or ():
            self.free_gpus[index] += min(handle.gpu_request, Fraction(1))
        handle.cell_key = None

    def request_prune(self, key: str) -> None:
        """Request the worker of a cell to stop because of bad results; a `pruned` event follows."""
        for handle in self.worker_handles:
            if handle.cell_key == key:
                with suppress(*PIPE_ERRORS):
                    handle.pipe.send(("prune", {}))

    def interrupt_all(self) -> None:
        """Request every worker to save a checkpoint and stop, each of them once; events follow."""
        for handle in self.worker_handles:
            if handle.cell_key is not None and handle.process.pid and not handle.stop_requested:
                handle.stop_requested = True
                with suppress(ProcessLookupError):
                    os.kill(handle.process.pid, signal.SIGTERM)

    def kill_all(self) -> None:
        for handle in self.worker_handles:
            handle.process.kill()

    def shutdown_worker(self, handle: WorkerHandle) -> None:
        """End an idle worker by closing its pipe; kill it if it does not exit within a second."""
        self.worker_handles.remove(handle)
        handle.pipe.close()
        handle.process.join(1)
        handle.process.kill()

    def close(self) -> None:
        """Shut down all workers."""
        for handle in list(self.worker_handles):
            self.shutdown_worker(handle)
