"""A real SLURM cluster for tests: its daemons run in a temporary folder, with two nodes on this machine.

The daemons are Debian's (slurmctld, slurmd, munge); `make test-slow` installs them where it can.  They need root, so
these tests are skipped for other users.
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


def wait_for(condition: Callable[[], object], seconds: float, description: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{description} did not happen within {seconds} s"
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class SlurmCluster:
    """Daemons of a SLURM cluster with two nodes."""

    def __init__(self) -> None:
        # a short path, since socket names are limited, and with the permissions that munge requires
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
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        self.start_daemon("munged", "--foreground", *(f"--{name}={self.folder / file}" for name, file in files.items()))
        wait_for((self.folder / "munge.socket").exists, 10, "munged's socket")
        self.start_daemon("slurmctld", "-D")
        self.start_daemon("slurmd", "-D", "-N", self.host)
        self.start_daemon("slurmd", "-D", "-N", f"{self.host}-second")
        node_states = lambda: self.run_command("sinfo", "--noheader", "--format=%D %t").strip()  # noqa: E731
        wait_for(lambda: node_states() == "2 idle", 30, "two idle nodes")

    def start_daemon(self, *arguments: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(arguments, env=self.environment, stdout=log, stderr=log))

    def run_command(self, *arguments: str) -> str:
        return subprocess.run(arguments, env=self.environment, capture_output=True, text=True, timeout=30).stdout

    def close(self) -> None:
        """Cancel the remaining jobs, then end the daemons in reverse order."""
        self.run_command("scancel", "--me")
        for signal_ in ("--signal=KILL", "--full"):
            self.run_command("scancel", "--me", signal_)
        wait_for(lambda: not self.run_command("squeue", "--noheader").strip(), 30, "an empty queue")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a SLURM of one's own needs root and munge, slurmctld, slurmd, slurm-client; missing: {missing}")
    cluster = SlurmCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
