"""Stop a run on SIGTERM or Ctrl-C: finish the step, save a checkpoint, then raise RunInterrupted.

During a step a signal only sets a flag, because weights may be partly updated.  The processes of a run exchange the
flag in every step, so that all stop after the same one.  A second signal, or a signal outside of training, stops the
run immediately.  Signals within DEBOUNCE_SECONDS count as one: SLURM signals every process, and the parent process
signals its children again.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hqlt_lab.errors import TrainingError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEBOUNCE_SECONDS = 2.0


class RunInterrupted(TrainingError):
    """The run was stopped by a signal; the same command resumes it from its last checkpoint."""


def stopped_after_saving(step: int) -> RunInterrupted:
    """Return the error of a run that was stopped by a signal and has saved a checkpoint."""
    return RunInterrupted(f"The run was stopped and saved at step {step}. Run the same command again to resume.")


class StopSignalHandler:
    """Context manager that handles stop signals; without effect outside of the main thread."""

    def __init__(self) -> None:
        self.stop_requested = False  # this process received a signal
        self.requested_at = 0.0  # time.monotonic() of that signal
        self.stop_agreed = False  # all processes know of the signal and stop after this step
        self.is_training = False
        self.previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignalHandler":
        self.previous_handlers = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
        self.install_handlers()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_training = False
        if threading.current_thread() is threading.main_thread():
            for signum, handler in self.previous_handlers.items():
                signal.signal(signum, handler)

    def install_handlers(self) -> None:
        """Install the signal handlers of this class instead of Lightning's.

        Lightning's own handlers would start a collective operation while other processes may be in a different one, a
        deadlock.
        """
        if threading.current_thread() is threading.main_thread():
            for signum in STOP_SIGNALS:
                signal.signal(signum, self.handle_signal)

    def handle_signal(self, signum: int, frame: FrameType | None) -> None:
        """Request a stop after the current step, or raise RunInterrupted at once."""
        if self.stop_requested and time.monotonic() - self.requested_at < DEBOUNCE_SECONDS:
            return
        if self.stop_requested or not self.is_training:
            raise RunInterrupted(
                "The run was stopped at once. Run the same command again to resume from its checkpoint."
            )
        self.stop_requested, self.requested_at = True, time.monotonic()


@contextmanager
def ignore_signal(signum: signal.Signals) -> Iterator[None]:
    """Ignore a signal within the context, also in child processes started in it; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signum, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signum, previous_handler)
