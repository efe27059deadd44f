"""The MLflow server behind `hqlt ui`: one process, stopped when the context ends."""

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
from hqlt_lab.redact import redact_secrets
from hqlt_lab.track.tracking_store import TrackingStore
from hqlt_lab.track.ui import network
from hqlt_lab.track.ui.network import select_port

ServerProcess: TypeAlias = "subprocess.Popen[bytes]"
START_TIMEOUT = 90.0  # seconds until the server must respond
STOP_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
APP = "hqlt_lab.track.ui.mlflow_asgi_app:create_app"
LIGHT_SERVER_ENV = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # 0.5 GB of memory instead of 3


@contextmanager
def serve_ui(
    tracking_store: TrackingStore, port: int | None = None, host: str = network.LOOPBACK_HOST
) -> Iterator[str]:
    """Run a server for this store within the context and yield its URL; a remote store already has a server."""
    if tracking_store.is_remote:
        yield tracking_store.redacted_uri
        return
    port = select_port(host, port)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        process = start_server(tracking_store, host, port, log)
        try:
            wait_until_healthy(process, network.health_url(host, port), log)
            yield network.server_url(host, port)
        finally:
            stop_server(process)


def start_server(tracking_store: TrackingStore, host: str, port: int, log: Path) -> ServerProcess:
    """Start MLflow's server in a process group of its own."""
    command = [sys.executable, "-m", "uvicorn", "--factory", APP, "--host", host, "--port", str(port)]
    with log.open("wb") as out:
        # every user of the machine can read a command line, and the URI may contain a password
        env = {
            **os.environ,
            **LIGHT_SERVER_ENV,
            "MLFLOW_BACKEND_STORE_URI": tracking_store.uri,
            "MLFLOW_DEFAULT_ARTIFACT_ROOT": tracking_store.artifact_root,
            **network.server_env(host, port),
        }
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )


def wait_until_healthy(process: ServerProcess, url: str, log: Path) -> None:
    """Wait until the server responds.  Raise StoreError with the end of its log if it does not start."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(URLError, OSError), urlopen(f"{url}/health", timeout=2):
            return
        time.sleep(0.1)
    last_lines = log.read_text(errors="replace").strip().splitlines()[-5:]
    output = redact_secrets(" | ".join(last_lines)) or "nothing"
    raise StoreError(f"The MLflow server did not start at {url}. Its output: {output}")


def stop_server(process: ServerProcess) -> None:
    """Stop the server with all its processes: SIGTERM, then SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
