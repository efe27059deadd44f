"""`hqlt ui` that is told to end, as batch systems and service managers do it: nothing of MLflow's server stays."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.study.place import nobody_left
from tests.track.conftest import until

pytestmark = pytest.mark.slow
HQLT = str(Path(sys.executable).parent / "hqlt")


class Shown(subprocess.Popen[str]):
    """A UI, and the server behind it."""

    servers: list[psutil.Process]

    def look(self) -> list[psutil.Process]:
        self.servers = psutil.Process(self.pid).children(recursive=True)
        return self.servers


@pytest.fixture
def ui(tracker) -> Iterator[Shown]:
    words = ["ui", "--runs", str(tracker.database.parent)]
    with Shown([HQLT, *words], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()
    for one in process.servers:
        with suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.mark.parametrize("moment", ["while the server starts", "when it answers"])
def test_sigterm_leaves_no_server_behind(ui, moment):
    until(ui.look, 60)
    if moment == "when it answers":
        assert any("Ctrl-C ends it" in line for line in iter(ui.stdout.readline, ""))
    servers = ui.look()
    ui.send_signal(signal.SIGTERM)
    assert ui.wait(30) == 0
    assert nobody_left(servers)
