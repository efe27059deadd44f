"""The MLflow server behind `hqlt ui`: one light worker, gone when the lab is."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from urllib.error import URLError
from urllib.request import urlopen

from hqlt_lab.errors import StoreError
from hqlt_lab.secrets import scrubbed
from hqlt_lab.track import doors
from hqlt_lab.track.ports import port_for
from hqlt_lab.track.store import Tracker

Process: TypeAlias = "subprocess.Popen[bytes]"
STARTING = 90.0  # seconds until the server has to answer
ENDING = 10.0  # seconds between asking it to end and ending it
LIGHT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # 0.5 GB instead of 3


@contextmanager
def serve(tracker: Tracker, port: int | None = None, host: str = doors.HERE) -> Iterator[str]:
    """The address of a server for this store, while the context lasts; a store behind a server has its own."""
    if tracker.served:
        yield tracker.shown
        return
    port = port_for(host, port)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        process = start(tracker, host, port, log)
        try:
            wait_for(process, doors.knocked_at(host, port), log)
            yield doors.address(host, port)
        finally:
            end(process)


def start(tracker: Tracker, host: str, port: int, log: Path) -> Process:
    """MLflow's own server, in a group of its own."""
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", host, "--port", str(port)]
    if tracker.files:
        command += ["--default-artifact-root", tracker.files]
    with log.open("wb") as out:
        # a command line can be read by everybody on the machine, and the store may have a password in its address
        told = {**os.environ, **LIGHT, "MLFLOW_BACKEND_STORE_URI": tracker.uri, **doors.settings(host, port)}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=told, start_new_session=True
        )


def wait_for(process: Process, address: str, log: Path) -> None:
    """Until the server answers."""
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        with suppress(URLError, OSError), urlopen(f"{address}/health", timeout=2):
            return
        time.sleep(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-5:]
    said = scrubbed(" | ".join(last)) or "nothing"
    raise StoreError(f"The MLflow server did not start at {address}. It said: {said}")


def end(process: Process) -> None:
    """Leave none of its processes behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
