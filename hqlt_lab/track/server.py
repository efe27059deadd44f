"""The MLflow server behind `hqlt ui`: one light worker, gone when the lab is."""

import os
import signal
import socket
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
from hqlt_lab.track.store import Tracker

Process: TypeAlias = "subprocess.Popen[bytes]"
STARTING = 90.0  # seconds until the server has to answer
ENDING = 10.0  # seconds between asking it to end and ending it
LIGHT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}  # 0.5 GB instead of 3


@contextmanager
def serve(tracker: Tracker, port: int = 5000, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server for this store, while the context lasts; a store behind a server has its own."""
    if tracker.served:
        yield tracker.uri
        return
    port = port if free(host, port) else any_port(host)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        process = start(tracker, host, port, log)
        try:
            address = f"http://{host}:{port}"
            wait_for(process, address, log)
            yield address
        finally:
            end(process)


def start(tracker: Tracker, host: str, port: int, log: Path) -> Process:
    """MLflow's own server, in a group of its own."""
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", tracker.uri, "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    if tracker.files:
        command += ["--default-artifact-root", tracker.files]
    with log.open("wb") as out:
        told = {**os.environ, **LIGHT}
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
    raise StoreError(f"The MLflow server did not start at {address}. It said: {' | '.join(last) or 'nothing'}")


def end(process: Process) -> None:
    """Leave none of its processes behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free(host: str, port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
        except OSError:
            return False
    return True


def any_port(host: str) -> int:
    """A port that nobody uses now."""
    with socket.socket() as door:
        door.bind((host, 0))
        return int(door.getsockname()[1])
