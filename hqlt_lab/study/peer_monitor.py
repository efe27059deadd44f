"""Monitors the other coordinators of a shared study: cells that they begin and end, attempts that dead ones left open.

The ledger calls these coordinators workers; they are not the training processes of an executor.

No-op for journal storage, which has a single writer.
"""

import time
from collections.abc import Callable, Container
from contextlib import suppress

from hqlt_lab.study.ledger.cell_record import CellRef
from hqlt_lab.study.ledger.postgres import ClaimLost
from hqlt_lab.study.plan.study_plan import StudyPlan
from hqlt_lab.study.study_callback import StudyCallback

POLL_INTERVAL = 2.0  # seconds
ACTIVE_STATES = ("waiting", "running")


class PeerMonitor:
    """Polls the ledger for the work of other workers, and reports it to a callback."""

    def __init__(self, plan: StudyPlan, callback: StudyCallback) -> None:
        self.plan, self.ledger, self.callback = plan, plan.ledger, callback
        self.last_poll = time.monotonic()
        self.active_keys: set[str] = set()  # cells that other workers are training
        self.ledger.unprocessed_keys.clear()  # the plan was built from everything written so far

    def has_pending_cells(self, cell_filter: Callable[[CellRef], bool]) -> bool:
        """Return whether any selected cell is still waiting or running in a shared study.

        This process then keeps polling, because a cell returns to the queue if the worker that trains it dies.
        """
        if not self.ledger.backend.is_shared:
            return False
        return any(
            cell_filter(cell_ref) and self.plan.cell_state(cell_ref) in ACTIVE_STATES
            for cell_ref in self.plan.list_cells()
        )

    def poll_peers(self, own_keys: Container[str], force: bool = False) -> None:
        """Close attempts of dead workers, and report cells that other workers have begun or ended."""
        if not self.ledger.backend.is_shared or (time.monotonic() - self.last_poll < POLL_INTERVAL and not force):
            return
        self.ledger.refresh()
        if self.ledger.has_orphans():
            with suppress(ClaimLost), self.ledger.claim_lock():
                self.ledger.unprocessed_keys |= self.ledger.close_orphans()
        changed_keys, self.ledger.unprocessed_keys = self.ledger.unprocessed_keys, set()
        for cell_ref in self.plan.list_cells() if changed_keys else ():
            if cell_ref.key in changed_keys and cell_ref.key not in own_keys and not self.was_claimed_by_us(cell_ref):
                self.notify_state(cell_ref)
        self.last_poll = time.monotonic()

    def was_claimed_by_us(self, cell_ref: CellRef) -> bool:
        """Return whether the last attempt at a cell was made by this process, which has reported it already."""
        attempts = self.ledger.get_attempts(cell_ref.key)
        return bool(attempts) and attempts[-1].cell_attributes["worker_id"] == self.ledger.backend.worker_id

    def notify_state(self, cell_ref: CellRef) -> None:
        """Report the current state of another worker's cell to the callback."""
        record = self.plan.cell_record(cell_ref)
        if cell_ref.key not in self.active_keys:
            self.callback.on_cell_start(record, self.plan.representative_cell(cell_ref))
        if record.state == "running":
            self.active_keys.add(cell_ref.key)
        else:
            self.active_keys.discard(cell_ref.key)
            self.callback.on_cell_end(record)
