"""Advisory locks on files, with the name of the process that holds them.

    with file_lock(folder / "training.lock", timeout=60, holder=describe_process()):
        ...

The kernel releases a lock when its process ends, however it ends. The lock file stays: removing it would let a third
process lock a new file of the same name. The holder's name in it outlives the lock, so `read_holder` is meaningful
only while `is_locked`.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from hqlt_lab.errors import StoreError

POLL_INTERVAL = 0.05  # seconds between two attempts; flock itself has no time limit
UPDATE_TIMEOUT = 60.0  # seconds; a holder that updates a file needs milliseconds
UNKNOWN_HOLDER = "an unknown process"


class LockHeld(StoreError):
    """Another process holds the lock."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path}: another process holds this lock ({holder}).")
        self.path, self.holder = path, holder


@contextmanager
def file_lock(
    path: Path, *, timeout: float | None = None, shared: bool = False, holder: str | None = None
) -> Iterator[None]:
    """Hold a lock on a file, creating the file. Raise LockHeld if it is not free within `timeout` seconds.

    Without a timeout, wait until the lock is free; with 0, try once. `holder` and the time are written into the file,
    and LockHeld names them in other processes. Many processes can hold a shared lock, which excludes an exclusive one.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        if not acquire_lock(handle, timeout, shared):
            raise LockHeld(path, read_holder(path))
        if holder is not None:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{holder}, since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)
        yield
    finally:
        os.close(handle)


def acquire_lock(handle: int, timeout: float | None, shared: bool) -> bool:
    """Lock an open file, waiting at most `timeout` seconds; return whether the lock was acquired."""
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if timeout is None:
        fcntl.flock(handle, operation)
        return True
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_INTERVAL)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the exclusive lock."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return not acquire_lock(file.fileno(), 0, shared=True)
    return False


def read_holder(path: Path) -> str:
    """Return the name that the latest holder wrote into the lock file, or UNKNOWN_HOLDER if it wrote none."""
    with suppress(FileNotFoundError):
        return path.read_text(errors="replace") or UNKNOWN_HOLDER
    return UNKNOWN_HOLDER


def describe_process() -> str:
    """Return the name of this process for `holder`."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def wait_for_lock(path: Path, timeout: float = UPDATE_TIMEOUT) -> Iterator[None]:
    """Hold a lock that other processes hold for a short time. Raise StoreError that names the holder if one keeps it.

    The holder may be frozen, such as a process that was stopped or that waits for a disk that does not answer.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path, timeout=timeout, holder=describe_process()))
        except LockHeld as error:
            raise StoreError(
                f"{path}: {error.holder} has held this lock for more than {timeout:g} s and may be frozen. End that "
                "process and run the same command again."
            ) from error
        yield


def locked_update(file: Path, timeout: float = UPDATE_TIMEOUT) -> AbstractContextManager[None]:
    """Hold an exclusive lock for a read-modify-write of `file`, so that concurrent processes do not lose updates."""
    return wait_for_lock(file.with_name(f"{file.name}.lock"), timeout)
