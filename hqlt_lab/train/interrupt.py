"""The run is asked to stop: it ends its step, saves, and says how to go on.

SIGTERM and Ctrl-C are only noted while a step is under way, because weights may then be half updated; all processes
hear of it in their next exchange and stop after the same step.  Asked twice, or outside of training, it stops at once.
What comes within two seconds is one request: SLURM tells every process, and whoever started this one tells it again.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hqlt_lab.errors import TrainingError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_REQUEST = 2.0  # seconds


class Interrupted(TrainingError):
    """The run was asked to stop; the same command goes on from its last checkpoint."""


class Interruption:
    """Listens for signals between `with` and its end, where this is the main thread."""

    def __init__(self) -> None:
        self.asked = False  # this process was asked
        self.since = 0.0  # when
        self.agreed = False  # all processes know, and stop after this step
        self.learning = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        self.before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.learning = False
        if threading.current_thread() is threading.main_thread():
            for number, handler in self.before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals; Lightning's own handler would talk to other processes in the middle of their exchange."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self.hear)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """What happens on a signal."""
        if self.asked and time.monotonic() - self.since < ONE_REQUEST:
            return
        if self.asked or not self.learning:
            raise Interrupted("The run was stopped at once. Run the same command again to go on from its checkpoint.")
        self.asked, self.since = True, time.monotonic()


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    """Nobody hears this signal for a moment, nor any process that is started in it, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
