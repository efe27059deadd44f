"""`hqlt ui` that gets SIGTERM, as from batch systems and service managers: no server process is left behind."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.study.study_folder import all_exited
from tests.track.conftest import wait_until

pytestmark = pytest.mark.slow
HQLT = str(Path(sys.executable).parent / "hqlt")


class UiProcess(subprocess.Popen[str]):
    """A process of `hqlt ui`, and the server processes that it started."""

    servers: list[psutil.Process]

    def find_servers(self) -> list[psutil.Process]:
        self.servers = psutil.Process(self.pid).children(recursive=True)
        return self.servers


@pytest.fixture
def ui(tracking_store) -> Iterator[UiProcess]:
    arguments = ["ui", "--runs", str(tracking_store.sqlite_path.parent)]
    with UiProcess([HQLT, *arguments], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()
    for server in process.servers:
        with suppress(psutil.NoSuchProcess):
            server.kill()


@pytest.mark.parametrize("moment", ["while the server starts", "when it answers"])
def test_sigterm_leaves_no_server_behind(ui, moment):
    wait_until(ui.find_servers, 60)
    if moment == "when it answers":
        assert any("Stop with Ctrl-C" in line for line in iter(ui.stdout.readline, ""))
    servers = ui.find_servers()
    ui.send_signal(signal.SIGTERM)
    assert ui.wait(30) == 0
    assert all_exited(servers)
