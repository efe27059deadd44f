"""Coordinator: claims the waiting cells of a study, gives them to an executor and writes the results to the ledger.

    record_looks  ->  dispatch_cells  ->  poll events  ->  finish attempts  ->  record_looks ...

In a shared study several coordinators do this at once: a cell is claimed under a lock, and the cells of the other
coordinators are polled regularly.  The loop ends when no cell is left that any coordinator has to train.

After Ctrl-C or SIGTERM no new cells start, and every running cell saves a checkpoint and stops; it waits for the next
run.  After a second signal, or after STOP_TIMEOUT seconds, the workers are killed.  If the machine blocks an attempt (a
full disk, a component file that has changed), no new cells start, the running ones finish, and the reason is raised.
A cell whose folder another process keeps locked is left out, the others are trained, and then the reason is raised.
"""

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import translate_write_errors
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.rundir import code_hashes, metrics, outcome
from hqlt_lab.rundir.cell_file import lock_wait_message
from hqlt_lab.study.eta import Workload
from hqlt_lab.study.executors._base import STOP_TIMEOUT, CellEvent, Executor
from hqlt_lab.study.ledger.attempt_history import Attempt
from hqlt_lab.study.ledger.cell_record import CellRecord, CellRef
from hqlt_lab.study.ledger.postgres import ClaimLost
from hqlt_lab.study.peer_monitor import PeerMonitor
from hqlt_lab.study.plan.search_space import point_from_params
from hqlt_lab.study.plan.sequential_testing_record import describe_looks, write_looks
from hqlt_lab.study.plan.study_plan import StudyPlan
from hqlt_lab.study.study_callback import StudyCallback
from hqlt_lab.track.provenance import cell_code_hashes
from hqlt_lab.track.study_description import CellInfo, build_cell_info
from hqlt_lab.train.interrupt import DEBOUNCE_SECONDS, STOP_SIGNALS

logger = logging.getLogger(__name__)


class RunSink(Protocol):
    """Receives the state of cells for tracking; implemented by `track.mlflow_sync.SyncThread`."""

    def enqueue(self, info: CellInfo) -> None: ...


@dataclass
class CellJob:
    """A cell that this coordinator is training."""

    cell_ref: CellRef
    cell: Cell
    attempt: Attempt
    folder: Path
    step: int = 0
    latest_metrics: dict[str, float] = field(default_factory=dict)
    reported_values: dict[int, float] = field(default_factory=dict)  # validation values of earlier attempts, by step
    is_lock_reported: bool = False  # the user was informed that it waits for the training lock
    has_ended: bool = False  # its attempt is over, even if the ledger could not be written

    def read_curve(self, metric: str) -> dict[int, float]:
        """Return the values of a metric in the cell's folder: step -> value."""
        rows, _ = metrics.read_rows(self.folder)
        return {row.step: row.metrics[metric] for row in rows if metric in row.metrics}


def cell_info_from_record(cell: Cell, record: CellRecord) -> CellInfo:
    """Return the description of a cell for MLflow.

    Its key is the name of its folder, so that each generation of a superseded cell is a run of its own.
    """
    return build_cell_info(record.folder.name, cell, record.folder, record.state, record.why, record.code)


class Coordinator:
    """Trains the waiting cells that `cell_filter` selects, at most `limit` of them."""

    def __init__(
        self,
        plan: StudyPlan,
        executor: Executor,
        run_sink: RunSink,
        callback: StudyCallback,
        cell_filter: Callable[[CellRef], bool],
        limit: int | None = None,
    ) -> None:
        self.plan, self.ledger, self.executor = plan, plan.ledger, executor
        self.run_sink, self.callback = run_sink, callback
        # budget: number of cells that may still be started
        self.cell_filter, self.budget = cell_filter, math.inf if limit is None else limit
        self.queue: list[CellRef] = []  # waiting cells in the order of the plan
        self.jobs: dict[str, CellJob] = {}  # running cells by key
        self.stop_requests, self.last_signal_time, self.kill_deadline, self.blocked_reason = 0, 0.0, math.inf, ""
        self.locked_cells: dict[str, str] = {}  # cells whose folder is locked, left out of this run: key -> reason
        self.finished_folders: list[Path] = []  # of the cells that are done since this coordinator started
        self.num_looks = len(plan.evaluate_looks().counts)  # looks that were taken so far
        self.peers = PeerMonitor(plan, callback)
        self.ledger.backend.should_abort = lambda: self.stop_requests > 0

    def run_until_done(self) -> bool:
        """Train until no cell is left; return False if interrupted before."""
        store_folder = self.plan.store.folder
        with self.signal_handlers(), self.checkpoint_on_store_failure(), translate_write_errors(store_folder):
            while True:
                self.record_looks()
                self.dispatch_cells()
                if not self.jobs and self.blocked_reason:
                    raise TrainingError(self.blocked_reason)
                if not self.jobs and (
                    self.stop_requests or self.budget <= 0 or not self.peers.has_pending_cells(self.is_selected)
                ):
                    self.peers.poll_peers(self.jobs, force=not self.stop_requests)
                    self.stop_if_requested()  # an executor of remote jobs then reports that they keep running
                    self.report_missing_folders()
                    if self.locked_cells and not self.stop_requests:
                        raise TrainingError("\n".join(self.locked_cells.values()))
                    return not self.stop_requests
                for event in self.executor.poll_events(timeout=0.25):
                    self.handle_event(event)
                self.peers.poll_peers(self.jobs)
                self.ledger.backend.check_intact()
                self.report_lock_waits()
                self.callback.on_tick()
                self.stop_if_requested()

    def record_looks(self) -> None:
        """Record new looks before cells are claimed that they add, and inform the user."""
        result = self.plan.evaluate_looks()
        if len(result.counts) <= self.num_looks:
            return
        write_looks(self.plan.store.folder, result.counts)
        self.num_looks, later_seeds = len(result.counts), self.plan.experiment.final_seeds[result.counts[-1] :]
        added = [ref for ref in self.plan.final_cells() if ref.seed in later_seeds]
        waiting = {
            ref.key: Workload(ref.arm.title, self.plan.representative_cell(ref).train.steps)
            for ref in added
            if self.is_selected(ref) and self.is_waiting(ref)
        }
        self.callback.on_look(describe_looks(result, self.plan.experiment.looks), len(added), waiting)

    def dispatch_cells(self) -> None:
        """Claim and start cells while the executor can take more."""
        while not self.stop_requests and not self.blocked_reason and self.budget > 0 and (cell_ref := self.next_cell()):
            if not self.executor.can_start(self.plan.representative_cell(cell_ref)):
                return
            if job := self.claim_cell():
                self.budget -= 1
                self.peers.active_keys.discard(job.cell_ref.key)  # now claimed by this coordinator
                self.notify_state(job.cell_ref.key)
                with translate_write_errors(job.folder):  # the folder may be a link to another disk
                    self.executor.start_cell(
                        job.cell_ref.key, job.cell, job.folder, len(self.ledger.get_attempts(job.cell_ref.key))
                    )

    def next_cell(self) -> CellRef | None:
        """Return the first waiting cell; failures and finished searches may add new ones."""
        while self.queue and not self.is_waiting(self.queue[0]):
            self.queue.pop(0)  # another worker has claimed it
        if not self.queue:
            self.queue = [ref for ref in self.plan.list_cells() if self.is_selected(ref) and self.is_waiting(ref)]
        return self.queue[0] if self.queue else None

    def is_selected(self, cell_ref: CellRef) -> bool:
        """Return whether this coordinator may train a cell."""
        return cell_ref.key not in self.locked_cells and self.cell_filter(cell_ref)

    def is_waiting(self, cell_ref: CellRef) -> bool:
        """Return whether a cell has to be trained and no worker is training it."""
        return cell_ref.key not in self.jobs and self.plan.cell_state(cell_ref) == "waiting"

    def claim_cell(self) -> CellJob | None:
        """Begin an attempt at the next cell under the claim lock; return None if it could not be claimed."""
        job = None
        try:
            with self.ledger.claim_lock():
                # may differ from the cell before the lock, which another worker may have claimed
                cell_ref = self.next_cell()
                if cell_ref and self.executor.can_start(self.plan.representative_cell(cell_ref)):
                    self.queue.pop(0)
                    job = self.jobs[cell_ref.key] = self.begin_attempt(cell_ref)
        except ClaimLost:
            if job is not None:
                del self.jobs[job.cell_ref.key]
                self.ledger.finish_attempt(job.attempt, "interrupted", step=0)
            return None
        return job

    def begin_attempt(self, cell_ref: CellRef) -> CellJob:
        """Write a new attempt at a cell to the ledger, with the point that the sampler suggests for it."""
        plan, study = self.plan, self.plan.study_name_by_arm[cell_ref.arm.title]
        search_space = {} if cell_ref.is_reported else plan.search_space
        trial = self.ledger.ask_trial(study, search_space, plan.trial_params(cell_ref) if search_space else None)
        point = point_from_params(trial.params, plan.experiment.tune) if search_space else cell_ref.point
        assert point is not None
        cell = plan.build_cell(cell_ref, point)
        folder = plan.store.cell_folder(cell_ref.key, self.ledger.generations.get(cell_ref.key, 0))
        code = cell_code_hashes(cell)
        trained_with = code_hashes.combine_code_hashes(folder, code)
        code_hashes.write_code_hashes(folder, trained_with)
        arm = cell_ref.arm.title.to_dict()
        cell_attributes = {"key": cell_ref.key, "arm": arm, "seed": cell_ref.seed, "point": dict(point)}
        cell_attributes |= {"is_reported": cell_ref.is_reported, "code": code, "trained_with": trained_with}
        job = CellJob(cell_ref, cell, self.ledger.begin_attempt(study, trial, cell_attributes), folder)
        if self.is_prunable(job):
            job.reported_values = job.read_curve(plan.experiment.measure.select)
            self.ledger.report_values(job.attempt, job.reported_values)
        return job

    def handle_event(self, event: CellEvent) -> None:
        """Process an event of the executor: record metrics, or finish the attempt."""
        job = self.jobs[event.key]
        if event.kind == "metrics":
            self.record_metrics(job, **event.payload)
            return
        job.has_ended = True
        status, value, details = self.make_ledger_status(job, event)
        self.ledger.finish_attempt(job.attempt, status, value, **details)
        if status == "done":
            self.finished_folders.append(job.folder)
        self.notify_state(event.key)
        del self.jobs[event.key]

    def record_metrics(self, job: CellJob, step: int, metrics: dict[str, float]) -> None:
        """Record new metrics of a cell; request pruning if the pruner finds the cell worse than the others."""
        job.step, job.latest_metrics = step, job.latest_metrics | metrics
        self.callback.on_metrics(job.cell_ref.key, step, metrics)
        value = metrics.get(self.plan.experiment.measure.select)
        if value is None or step in job.reported_values or not self.is_prunable(job):
            return
        self.ledger.report_values(job.attempt, {step: value})
        if self.ledger.should_prune(job.attempt):
            self.executor.request_prune(job.cell_ref.key)

    def report_missing_folders(self) -> None:
        """Log a warning if the folder of a cell that was trained in this run has lost its outcome."""
        missing = [folder for folder in self.finished_folders if not (folder / outcome.OUTCOME_FILE).exists()]
        if missing:
            cells = pluralize_count(len(missing), "trained cell")
            logger.warning(
                f"The files of {cells} were deleted, such as {missing[0]}. The results are in the ledger; curves and "
                "weights are lost. `hqlt run FILE --again --only ...` trains the cells again."
            )

    def report_lock_waits(self) -> None:
        """Inform the user, once per attempt, about a cell that waits for the training lock of its folder."""
        for job in self.jobs.values():
            if not job.latest_metrics and not job.is_lock_reported and (message := lock_wait_message(job.folder)):
                job.is_lock_reported = True
                logger.warning(f"{job.cell_ref.key}: {message}")

    def is_prunable(self, job: CellJob) -> bool:
        """Return whether a cell may be pruned: only with `prune`, and not if other cells select the tuned values.

        Pruning the reported seeds of a selected point would bias the result.
        """
        experiment = self.plan.experiment
        return bool(experiment.prune) and not (experiment.has_tuning_cells and job.cell_ref.is_reported)

    def make_ledger_status(self, job: CellJob, event: CellEvent) -> tuple[Any, float | None, dict[str, Any]]:
        """Return the ledger's status, value and further fields for the final event of an attempt."""
        payload = dict(event.payload)
        if event.kind == "ended":
            status, why = payload.pop("status"), payload.pop("message")
            value = payload["metrics"].get(job.cell.measure.select, math.nan)
            if status == "done" and math.isnan(value):
                status, why = "diverged", f"{job.cell.measure.select} is not a number. {why}".strip()
            return status, value, {**payload, "why": why}
        if event.kind == "pruned":
            why = f"Pruned at step {job.step}: most other cells of its arm were better."
            return "pruned", None, {"why": why, "step": job.step, "metrics": job.latest_metrics}
        if event.kind == "blocked":
            self.blocked_reason = self.blocked_reason or payload["why"]
            return "interrupted", None, {"step": job.step, "why": payload["why"]}
        if event.kind == "locked":
            self.locked_cells[event.key] = payload["why"]
            return "interrupted", None, {"step": job.step, "why": payload["why"]}
        if event.kind == "interrupted" or self.stop_requests:
            return "interrupted", None, {"step": job.step}
        return "failed", None, {"step": job.step, **payload}  # a worker that raised an error has sent its step

    def notify_state(self, key: str) -> None:
        """Pass the current state of a cell to `run_sink` and the callback."""
        job = self.jobs[key]
        record = self.plan.cell_record(job.cell_ref)
        self.run_sink.enqueue(cell_info_from_record(job.cell, record))
        if record.state == "running":
            self.callback.on_cell_start(record, job.cell)
        else:
            self.callback.on_cell_end(record)

    @contextmanager
    def signal_handlers(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM as stop requests.  Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous_handlers = {number: signal.signal(number, self.handle_signal) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def checkpoint_on_store_failure(self) -> Iterator[None]:
        """If the ledger fails, let the running cells save a checkpoint first.  Their results are in their folders."""
        try:
            yield
        except StoreError:
            deadline = time.monotonic() + STOP_TIMEOUT
            running = {key for key, job in self.jobs.items() if not job.has_ended}
            while running and self.stop_requests < 2 and time.monotonic() < deadline:
                self.executor.interrupt_all()
                running -= {event.key for event in self.executor.poll_events(timeout=0.25) if event.kind != "metrics"}
            raise

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Count a stop request.  A SIGTERM soon after another is ignored: batch systems may send it twice."""
        now = time.monotonic()
        self.stop_requests += not (
            number == signal.SIGTERM and self.stop_requests and now - self.last_signal_time < DEBOUNCE_SECONDS
        )
        self.last_signal_time = now

    def stop_if_requested(self) -> None:
        """After a stop request, interrupt the running cells; kill them after a second request or STOP_TIMEOUT."""
        if not self.stop_requests:
            return
        if self.kill_deadline == math.inf:
            if self.jobs:
                self.callback.on_interrupt()
            self.kill_deadline = time.monotonic() + STOP_TIMEOUT
        self.executor.interrupt_all()
        if self.stop_requests > 1 or time.monotonic() > self.kill_deadline:
            self.executor.kill_all()
