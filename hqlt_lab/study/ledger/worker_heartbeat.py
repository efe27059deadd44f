"""Heartbeats of the workers that share a study: process identity, liveness checks, and the heartbeat thread.

A worker id consists of the boot id of the machine, the PID namespace, the PID, the start time of the process, and a
random part for each time that it joins a study.  So no worker is mistaken for another one in a container, after a
reboot, when a PID is reused, or when a notebook joins again after an error.
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

# seconds without a heartbeat after which a worker on another machine counts as dead; $HQLT_GRACE overrides it
DEFAULT_GRACE_PERIOD = 90.0


def read_grace_period() -> float:
    """Return the grace period in seconds; all workers that share a study should use the same."""
    text = os.environ.get("HQLT_GRACE", str(DEFAULT_GRACE_PERIOD))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise StoreError(
            "$HQLT_GRACE: a number of seconds without a heartbeat is needed, at least 1, such as "
            f"{DEFAULT_GRACE_PERIOD:g}; got {text!r}."
        )
    return seconds


@cache
def host_id() -> str:
    """Return an id of this machine since its last boot, the PID namespace and the user."""
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    pid_namespace = Path("/proc/self/ns/pid")
    has_proc = boot_id.exists() and pid_namespace.is_symlink()
    machine = (
        f"{boot_id.read_text().strip()[:13]}.{os.readlink(pid_namespace)[5:-1]}" if has_proc else socket.gethostname()
    )
    # a system may hide the processes of other users, which would then look dead
    return f"{machine}.{os.getuid()}"


def process_identity() -> tuple[str, str]:
    """Return the worker id of this process, new for each call, and a readable name."""
    name = f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    return f"{host_id()}/{os.getpid()}/{process_start_time(os.getpid())}/{uuid.uuid4().hex[:8]}", name


def process_start_time(pid: int) -> str | None:
    """Return when a process started, independent of changes of the wall clock; None if it does not run."""
    import psutil

    file = Path(f"/proc/{pid}/stat")
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # field 22 of proc_pid_stat(5), counted from behind the name, which may contain anything; psutil's create_time
        # adds the boot time by the wall clock
        return file.read_text().rpartition(")")[2].split()[19] if file.exists() else str(process.create_time())
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None


def is_known_dead(worker_id: str) -> bool:
    """Return whether a worker was a process of this machine that has exited; processes elsewhere cannot be checked."""
    host, pid, started_at, _ = worker_id.split("/")
    return host == host_id() and process_start_time(int(pid)) != started_at


class HeartbeatThread(threading.Thread):
    """Records a heartbeat at regular intervals while the context is open."""

    def __init__(self, record_heartbeat: Callable[[], object], interval: float) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.record_heartbeat, self.interval = record_heartbeat, interval
        self.stop_event, self.healthy_since = threading.Event(), time.monotonic()

    def run(self) -> None:
        while not self.stop_event.wait(self.interval):
            start = time.monotonic()
            try:
                self.record_heartbeat()
            except Exception:  # the database is unavailable; the main thread reports it
                self.healthy_since = float("inf")
            else:
                # a heartbeat that hung, or the first one after a failure, starts a new healthy period
                if self.healthy_since > start or time.monotonic() - start > self.interval:
                    self.healthy_since = time.monotonic()

    def seconds_healthy(self) -> float:
        """Return the seconds since heartbeats have been succeeding; negative while they fail."""
        return time.monotonic() - self.healthy_since

    def __enter__(self) -> "HeartbeatThread":
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop_event.set()
        self.join(5)  # a heartbeat in progress would insert the row of this worker again after it was deleted
