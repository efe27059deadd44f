"""Worker process: trains one cell after another and exits when its coordinator does.

It receives ("train", job_spec) and ("prune", {}) and sends, always about its current cell:

    ready                           waiting for a cell
    metrics(step, metrics)          which it also appends to the cell's folder
    ended(outcome)                  done or diverged
    pruned | interrupted            stopped on request: by a "prune" command or by SIGTERM
    failed(why, permanent, ...)     the traceback is in the cell's log; the worker exits and is replaced
    blocked(why)                    not caused by the cell: a full disk, a folder that cannot be written, changed code
    locked(why)                     another process, which may be frozen, holds the training lock of the cell's folder
"""

import logging
import os
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.experiment.cell import Cell, cell_from_dict
from hqlt_lab.files import DiskFull, is_disk_full, is_write_error, translate_write_errors
from hqlt_lab.log_handler import log_to_stderr
from hqlt_lab.process_settings import release_gpu_memory, set_cpu_threads, set_visible_gpus
from hqlt_lab.redact import redact_secrets
from hqlt_lab.registry import RERUN_HINT, CodeChanged, export_to_subprocesses, list_loaded_files
from hqlt_lab.rundir.cell_file import CELL_FILE, FolderLocked
from hqlt_lab.rundir.metrics import MetricsWriter, read_last_step
from hqlt_lab.rundir.outcome import OUTCOME_FILE
from hqlt_lab.track.provenance import cell_code_hashes
from hqlt_lab.train.describe_failure import TransientError, describe_failure

logger = logging.getLogger(__name__)

LOG_FILE = "log.txt"
EXITING_EVENTS = ("failed", "blocked")  # the worker exits after these: the error may have left the process unusable
METRICS_INTERVAL = 0.25  # seconds between two messages for the display; the folder gets every metric
Message = tuple[str, dict[str, Any]]


class CellPruned(Exception):
    """Raised in the training loop when the coordinator prunes the cell."""


class CommandListener(threading.Thread):
    """Thread that reads the coordinator's commands; ends the process when the coordinator is gone."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(daemon=True)
        self.pipe, self.job_specs, self.prune_requested = pipe, queue.Queue[dict[str, Any]](), threading.Event()

    def run(self) -> None:
        try:
            while True:
                kind, payload = self.pipe.recv()
                if kind == "train":
                    self.prune_requested.clear()
                    self.job_specs.put(payload)
                else:
                    self.prune_requested.set()
        except (EOFError, OSError):
            os._exit(1)


def worker_main(pipe: Connection, threads: int) -> None:
    """Train the cells received through the pipe until the coordinator closes it or an attempt fails."""
    os.setsid()  # Ctrl-C in the terminal must reach the coordinator only
    listener = CommandListener(pipe)
    listener.start()
    set_cpu_threads(threads)
    kind = ""
    while kind not in EXITING_EVENTS:
        pipe.send(("ready", {}))
        kind, payload = run_attempt(
            listener.job_specs.get(), lambda message: send_if_writable(pipe, message), listener.prune_requested.is_set
        )
        pipe.send((kind, payload))
        release_gpu_memory()


def send_if_writable(pipe: Connection, message: Message) -> None:
    """Send metrics, or drop them if the pipe is full: a coordinator waiting for its database must not stop training."""
    poller = select.poll()
    poller.register(pipe, select.POLLOUT)
    if poller.poll(0):
        pipe.send(message)


def make_job_spec(cell: Cell, folder: Path, attempt: int, visible_devices: str) -> dict[str, Any]:
    """Return all a worker needs for an attempt: cell, folder, visible GPUs, component files and code hashes."""
    job_spec = {"cell": cell.to_dict(), "folder": str(folder), "attempt": attempt, "gpus": visible_devices}
    component_files = [str(file) for file in list_loaded_files()]
    return job_spec | {"component_files": component_files, "code": cell_code_hashes(cell)}


def run_attempt(
    job_spec: dict[str, Any], send_message: Callable[[Message], None], should_prune: Callable[[], bool]
) -> Message:
    """Train a cell and return how it ended: `blocked` by a full disk, a folder that cannot be written or changed code.

    Metrics are sent as they are logged, and `should_prune` is checked each time.
    """
    folder = Path(job_spec["folder"])
    try:
        with translate_write_errors(folder):
            return _run_attempt(job_spec, folder, send_message, should_prune)
    except (StoreError, CodeChanged) as error:
        return "blocked", {"why": str(error)}
    except FolderLocked as error:
        return "locked", {"why": str(error)}


def _run_attempt(
    job_spec: dict[str, Any], folder: Path, send_message: Callable[[Message], None], should_prune: Callable[[], bool]
) -> Message:
    """Train a cell and return how it ended.  Raise DiskFull, CodeChanged or FolderLocked: not caused by the cell."""
    cell = cell_from_dict(job_spec["cell"])
    folder.mkdir(parents=True, exist_ok=True)
    if job_spec["gpus"]:
        set_visible_gpus(job_spec["gpus"])
    metrics_writer: MetricsWriter | None = None
    last_sent = 0.0
    last_step: int | None = None

    def record_metrics(step: int, metrics: dict[str, float]) -> None:
        nonlocal metrics_writer, last_sent, last_step
        last_step = step
        # Opened late, when `fit` holds the folder's lock: an earlier worker, wrongly declared dead, may still write.
        metrics_writer = metrics_writer or resources.enter_context(MetricsWriter(folder))
        metrics_writer.write_row(step, metrics)
        if cell.measure.select in metrics or time.monotonic() - last_sent > METRICS_INTERVAL:
            send_message(("metrics", {"step": step, "metrics": metrics}))
            last_sent = time.monotonic()
        if should_prune():
            raise CellPruned

    title = f"attempt {job_spec['attempt']}, {time.strftime('%Y-%m-%d %H:%M:%S')}"
    output = redirect_output(folder / LOG_FILE, title)
    with output, log_to_stderr(logging.DEBUG), handle_sigterm(), ExitStack() as resources:
        try:
            load_verified_components(job_spec["component_files"], job_spec["code"], cell)
            from hqlt_lab.train.fit import fit
            from hqlt_lab.train.interrupt import RunInterrupted

            try:
                outcome = fit(cell, folder, record_metrics)
                check_run_files(folder)
                return "ended", asdict(outcome)
            except CellPruned:
                return "pruned", {}
            except (RunInterrupted, KeyboardInterrupt) as stop:
                logger.info(str(stop))
                return "interrupted", {}
        except (DiskFull, CodeChanged, FolderLocked):
            raise
        except Exception as error:
            is_deleted = folder.parent.is_dir() and not folder.is_dir()  # the other cells are not concerned
            if not is_deleted and (is_disk_full(error) or is_write_error(error, folder)):
                raise
            logger.error(redact_secrets(traceback.format_exc().rstrip()))
            step = read_last_step(folder) if last_step is None else last_step
            cause = TransientError(f"{folder}: it was deleted while the cell trained.") if is_deleted else error
            return "failed", describe_failure(cause)._asdict() | {"step": step}


def check_run_files(folder: Path) -> None:
    """Raise TransientError if the files of a finished run are gone; the next attempt writes them again."""
    if missing := [name for name in (CELL_FILE, OUTCOME_FILE) if not (folder / name).exists()]:
        raise TransientError(f"{folder}: files were deleted while the cell trained: {format_names(missing)}.")


def load_verified_components(files: Sequence[str], expected_code: Mapping[str, str], cell: Cell) -> None:
    """Load the user's component files; raise CodeChanged if their hashes differ from those in the ledger."""
    try:
        export_to_subprocesses([Path(file) for file in files])
        code = cell_code_hashes(cell)
    except Exception as error:
        message = f"a component that loaded when the run started can no longer be loaded. {error}"
        raise CodeChanged.at("", "code_unavailable", message, RERUN_HINT) from error
    if changed := [name for name, source in expected_code.items() if name != "lab" and code.get(name) != source]:
        message = f"the file of {format_names(changed)} has changed since the run started."
        raise CodeChanged.at("", "code_changed", message, RERUN_HINT)


@contextmanager
def redirect_output(file: Path, title: str) -> Iterator[None]:
    """Append stdout and stderr to a file, at the level of file descriptors, so that C libraries are included."""
    saved_descriptors = os.dup(1), os.dup(2)
    with file.open("a") as log:
        print(f"--- {title}", file=log, flush=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, saved in enumerate(saved_descriptors, 1):
                os.dup2(saved, descriptor)
                os.close(saved)


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt where `fit` has no handler: in setup, or while it waits for subprocesses."""
    previous_handler = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("The run was stopped before its first step.")
