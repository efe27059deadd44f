"""A thread that reads the folders of a study's cells every few seconds and sends to MLflow what it does not have yet.

    sync = SyncThread(tracking_store, study)
    sync.enqueue(cell_info)                     whenever a cell starts or ends; does not block
    backlog = sync.drain_queue(timeout=30)      None, or a sentence about what has not been sent

Small cells can train faster than MLflow takes them.  At the end of a study `drain_queue` therefore waits while cells
are being sent, and reports progress.

Errors do not reach the caller: what could not be sent stays in the folder and is sent later by this thread, by the next
run of the same command, or by `hqlt ui`.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hqlt_lab.file_lock import file_lock
from hqlt_lab.redact import first_error_line
from hqlt_lab.rundir.cell_state import TERMINAL_STATES
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.track.mlflow_content import evaluation_rows, sample_paths
from hqlt_lab.track.mlflow_writer import MlflowWriter, StudyRuns, to_mlflow_metrics
from hqlt_lab.track.study_description import CellInfo, StudyInfo
from hqlt_lab.track.tracking_store import StoreConnection, TrackingStore

SYNC_INTERVAL = 2.0  # seconds between two passes over the cells
MAX_BACKOFF = 60.0  # seconds between two passes while the store is unavailable
PROGRESS_INTERVAL = 1.0  # seconds between two reports of the progress at the end
SYNC_LOCK_FILE = "mlflow.lock"


class SyncQueue:
    """The cells and reports of a study that are to be sent, and which cells are complete in MLflow."""

    def __init__(self, tracking_store: TrackingStore, study: StudyInfo) -> None:
        self.writer, self.study = MlflowWriter(tracking_store, study), study
        self.cell_infos: dict[str, CellInfo] = {}
        self.report_paths: list[Path] = []
        self.study_runs: StudyRuns | None = None
        self.synced_cells: dict[str, CellInfo] = {}  # completely sent, in a terminal state

    def pending_cells(self) -> list[CellInfo]:
        """Return the cells that have been enqueued again or may have new data."""
        return [info for key, info in list(self.cell_infos.items()) if self.synced_cells.get(key) is not info]

    def sync_once(self, status: str, lock_timeout: float = 10.0) -> None:
        """Make one pass over all pending cells and reports.  An error in one cell does not stop the others.

        Raise the last error at the end of the pass.
        """
        last_error: Exception | None = None
        self.study.folder.mkdir(parents=True, exist_ok=True)
        # without the lock, two processes could both create a run for a new cell
        with file_lock(self.study.folder / SYNC_LOCK_FILE, timeout=lock_timeout):
            self.connect_store()
            for cell_info in self.pending_cells():
                try:
                    self.writer.send_cell(cell_info)
                    if cell_info.state in TERMINAL_STATES:
                        self.synced_cells[cell_info.key] = cell_info
                except Exception as error:
                    last_error = error
                    self.writer.invalidate()
                    self.writer.connection.check_available()
            while self.report_paths:
                self.writer.attach_report(self.report_paths[0])
                self.report_paths.pop(0)
            self.writer.set_study_status(status)
        if last_error is not None:
            raise last_error

    def connect_store(self) -> None:
        """Look up the study in MLflow.  If the database was replaced, all cells are pending again."""
        study_runs = self.writer.connect_study()
        self.writer.connection.check_available()
        if study_runs is not self.study_runs:
            self.study_runs = study_runs
            self.synced_cells.clear()

    def count_progress(self) -> tuple[int, int]:
        """Return numbers that change whenever something is sent."""
        return len(self.synced_cells), self.writer.batches_sent

    def backlog_message(self, reason: str) -> str:
        """Return a message about what has not been sent, and why."""
        cells = f"{len(self.pending_cells())} of {len(self.cell_infos)} cells"
        uri = self.writer.tracking_store.redacted_uri
        return (
            f"MLflow at {uri} is not up to date ({cells} are missing): {reason}. Nothing is lost: all results are in "
            f"{self.study.folder}, and the same command or `hqlt ui` logs them later."
        )


class SyncThread:
    """Sends one study to MLflow while it runs."""

    def __init__(self, tracking_store: TrackingStore, study: StudyInfo, interval: float = SYNC_INTERVAL) -> None:
        self.queue, self.interval = SyncQueue(tracking_store, study), interval
        self.backlog: str | None = None  # message about what drain_queue could not send
        self.unavailable_reason: str | None = None  # last error, until a pass succeeds
        self.drain_requested, self.drain_finished, self.shutdown_requested = (threading.Event() for _ in range(3))
        self.thread = threading.Thread(target=self.run_loop, name="mlflow sync", daemon=True)
        self.thread.start()

    def enqueue(self, info: CellInfo) -> None:
        """Set the current description of a cell; it replaces an earlier one."""
        self.queue.cell_infos[info.key] = info

    def attach_reports(self, paths: Iterable[Path]) -> None:
        """Upload these files or folders to the study's run at the next pass."""
        self.queue.report_paths += [Path(path) for path in paths]

    def drain_queue(self, timeout: float, on_progress: Callable[[int, int], None] | None = None) -> str | None:
        """Send the rest and end the thread.  Return a message about what was not sent before the timeout, or None.

        With `on_progress`, which is called with the numbers of sent and of all cells, the timeout begins again whenever
        something was sent.  Ctrl-C ends the wait; what is left is sent by the next run.
        """
        self.drain_requested.set()
        try:
            self.wait_for_drain(timeout, on_progress)
            reason = self.unavailable_reason or "it takes longer than expected"
        except KeyboardInterrupt:
            reason = "the wait was interrupted"
        self.shutdown_requested.set()
        self.backlog = None if self.drain_finished.is_set() else self.queue.backlog_message(reason)
        return self.backlog

    def wait_for_drain(self, timeout: float, on_progress: Callable[[int, int], None] | None) -> None:
        """Wait until everything is sent, or until the timeout."""
        progress, deadline = self.queue.count_progress(), time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            if self.drain_finished.wait(min(remaining, PROGRESS_INTERVAL)):
                return
            if on_progress is not None and self.queue.count_progress() != progress:
                progress, deadline = self.queue.count_progress(), time.monotonic() + timeout
                num_cells = len(self.queue.cell_infos)
                on_progress(num_cells - len(self.queue.pending_cells()), num_cells)

    def run_loop(self) -> None:
        """Make passes until a drain is requested and everything is sent, or a shutdown is requested."""
        failures = 0
        while not self.shutdown_requested.is_set():
            draining = self.drain_requested.is_set()
            try:
                self.queue.sync_once("FINISHED" if draining else "RUNNING")
                self.unavailable_reason, failures = None, 0
                if draining:
                    self.drain_finished.set()
                    return
            except Exception as error:  # from mlflow, sqlalchemy, requests or the disk: the thread must survive
                self.unavailable_reason, failures = first_error_line(error), failures + 1
            self.wait_backoff(failures)

    def wait_backoff(self, failures: int) -> None:
        """Wait until the next pass, with exponential backoff after failures; only briefly while draining."""
        if self.drain_requested.is_set():
            self.shutdown_requested.wait(min(0.1 * 2**failures, self.interval))
        else:
            self.drain_requested.wait(min(self.interval * 2 ** min(failures, 10), MAX_BACKOFF))


def send_evaluations(tracking_store: TrackingStore, folder: Path) -> str | None:
    """Send later evaluations of a cell to its run.  Return an error message, or None.

    A cell that has no run in this store yet is left for the next sync of its study.
    """
    uri, sync_state = tracking_store.redacted_uri, read_sync_state(folder)
    if sync_state is None or sync_state.uri != uri:
        return None
    try:
        client = StoreConnection(tracking_store).open_client()
        client.log_batch(sync_state.run, list(to_mlflow_metrics(evaluation_rows(folder))), synchronous=True)
        for file in sample_paths(folder):
            client.log_artifact(sync_state.run, str(file), file.parent.name)
    except Exception as error:  # an unavailable store must not fail the evaluation
        return (
            f"MLflow at {uri} does not have the evaluation yet: {first_error_line(error)}. The results are in {folder}."
        )
    return None


def sync_study(tracking_store: TrackingStore, study: StudyInfo, cell_infos: Iterable[CellInfo]) -> str | None:
    """Send cells to MLflow now, without a thread.  Return a message about what has not been sent, or None."""
    queue = SyncQueue(tracking_store, study)
    queue.cell_infos = {info.key: info for info in cell_infos}
    running = any(info.state == "running" for info in queue.cell_infos.values())
    try:
        queue.sync_once("RUNNING" if running else "FINISHED", lock_timeout=2.0)
    except Exception as error:  # an unavailable store must not fail the command
        return queue.backlog_message(first_error_line(error))
    return None
