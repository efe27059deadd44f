"""Signs of life: who we are, whether somebody on this machine is dead, and a thread that says that we are not.

A process is named by the machine's boot, its space of process numbers, its number and when it began, and each time it
joins a study anew: so nobody is taken for another one, in a container, after a restart or after an error in a notebook.
"""

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType

from hqlt_lab.errors import StoreError

GRACE = 90.0  # seconds of silence after which a program elsewhere counts as dead; $HQLT_GRACE says otherwise


def grace() -> float:
    """How long nobody is taken for dead; all who share a study should agree about it."""
    told = os.environ.get("HQLT_GRACE", str(GRACE))
    try:
        seconds = float(told)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise StoreError(f"$HQLT_GRACE: seconds of silence are needed, at least 1, such as {GRACE:g}; got {told!r}.")
    return seconds


@cache
def here() -> str:
    """This machine since it was started, the space in which its process numbers mean something, and its user."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    known = boot.exists() and space.is_symlink()
    where = f"{boot.read_text().strip()[:13]}.{os.readlink(space)[5:-1]}" if known else socket.gethostname()
    return f"{where}.{os.getuid()}"  # a system may hide the processes of other users, which are not dead for it


def ourselves() -> tuple[str, str]:
    """This program, as it joins a study: for programs and for people."""
    name = f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    return f"{here()}/{os.getpid()}/{begun(os.getpid())}/{uuid.uuid4().hex[:8]}", name


def begun(number: int) -> str | None:
    """When a process began, as its machine counts, which no step of the clock changes; None: it is no more."""
    import psutil

    file = Path(f"/proc/{number}/stat")
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # the words behind the name, which may hold anything; psutil adds the clock's time of the boot to this one
        return file.read_text().rpartition(")")[2].split()[19] if file.exists() else str(process.create_time())
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None


def seen_dead(who: str) -> bool:
    """Whether it was a process of this machine that is no more; of others nothing is seen from here."""
    where, number, started, _ = who.split("/")
    return where == here() and begun(int(number)) != started


class Pulse(threading.Thread):
    """Says now and then that we are there, while the context lasts."""

    def __init__(self, beat: Callable[[], object], every: float) -> None:
        super().__init__(name="pulse", daemon=True)
        self.beat, self.every, self.over, self.steady = beat, every, threading.Event(), time.monotonic()

    def run(self) -> None:
        while not self.over.wait(self.every):
            began = time.monotonic()
            try:
                self.beat()
            except Exception:  # the database is away; whoever needs it says so
                self.steady = float("inf")
            else:
                # a beat that hung, and one after a failure, begin a new time in touch
                if self.steady > began or time.monotonic() - began > self.every:
                    self.steady = time.monotonic()

    def steady_for(self) -> float:
        """Seconds without a failure; negative while there is one."""
        return time.monotonic() - self.steady

    def __enter__(self) -> "Pulse":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self.join(5)  # a beat under way would bring back who has just left
