"""A real SLURM for tests: its daemons in a folder of their own, with two nodes on this machine.

The daemons are Debian's (slurmctld, slurmd, munge); `make test-slow` installs them where it may.  Only root can start
jobs for whoever asks, so elsewhere these tests are skipped.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
TEMPLATE = Path(__file__).parent / "slurm.conf"


def wait_for(truth: Callable[[], object], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not truth():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Cluster:
    """Two nodes and those who manage them."""

    def __init__(self) -> None:
        # a short path that others may enter: sockets have short names, and munge looks at who may write where
        self.folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
        self.folder.chmod(0o755)
        self.host = socket.gethostname()
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in ("state", self.host, f"{self.host}-second"):
            (self.folder / name).mkdir()
        text = TEMPLATE.read_text().format(host=self.host, folder=self.folder, ports=free_ports(3))
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)

    def start(self) -> None:
        places = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid"}
        places |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        self.run("munged", "--foreground", *(f"--{name}={self.folder / file}" for name, file in places.items()))
        wait_for((self.folder / "munge.socket").exists, 10, "munged's socket")
        self.run("slurmctld", "-D")
        self.run("slurmd", "-D", "-N", self.host)
        self.run("slurmd", "-D", "-N", f"{self.host}-second")
        wait_for(lambda: self.ask("sinfo", "--noheader", "--format=%D %t").strip() == "2 idle", 30, "two idle nodes")

    def run(self, *words: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    def ask(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=30).stdout

    def close(self) -> None:
        """Cancel what is left, then end the daemons in the opposite order."""
        self.ask("scancel", "--me")
        for signal_ in ("--signal=KILL", "--full"):
            self.ask("scancel", "--me", signal_)
        wait_for(lambda: not self.ask("squeue", "--noheader").strip(), 30, "an empty queue")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a SLURM of one's own needs root and munge, slurmctld, slurmd, slurm-client; missing: {missing}")
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
