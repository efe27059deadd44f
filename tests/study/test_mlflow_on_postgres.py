"""MLflow on PostgreSQL, as docs/cluster.md has it: behind a server that says where files go, or without one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from hqlt_lab.track.ports import any_port
from hqlt_lab.track.server import end, wait_for

from .conftest import TINY

pytestmark = pytest.mark.slow
HQLT = Path(sys.executable).parent / "hqlt"
CELLS = 2


@contextmanager
def served(store: str, files: Path, folder: Path) -> Iterator[str]:
    """The server of the page, at a port of its own."""
    port, log = any_port("127.0.0.1"), folder / "server.log"
    words = ["--backend-store-uri", store, "--artifacts-destination", files, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", *words]
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_for(server, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)


def run(folder: Path, **environment: str) -> None:
    (folder / "tiny.yaml").write_text(f"{TINY}seeds: {CELLS}\n")
    done = subprocess.run(
        [HQLT, "run", "tiny.yaml"], cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not have everything" not in done.stdout + done.stderr


def all_is_there(store: str, files: Path) -> None:
    """Every cell is a run with its files, and every point of its curve is there once."""
    ask = create_engine(store, poolclass=NullPool).connect()
    with ask:
        runs = ask.execute(text("select count(*) from tags where key = 'hqlt.kind' and value = 'cell'")).scalar()
        points = ask.execute(text("select count(*) from metrics where key = 'train/loss'")).scalar()
    assert (runs, points) == (CELLS, 6 * CELLS)
    assert len(list(files.glob("**/cell.json"))) == CELLS


def test_a_server_with_postgresql_keeps_runs_and_files(tmp_path, postgres):
    store, files = postgres.database().replace("postgresql:", "postgresql+psycopg:"), tmp_path / "files"
    with served(store, files, tmp_path) as address:
        ledger = postgres.database()
        for _ in range(2):  # the second time there is nothing to train, and nothing to send
            run(tmp_path, MLFLOW_TRACKING_URI=address, HQLT_STORE=ledger)
    all_is_there(store, files)


def test_postgresql_without_a_server_has_its_files_where_it_was_told(tmp_path, postgres):
    store, files = postgres.database().replace("postgresql:", "postgresql+psycopg:"), tmp_path / "files"
    run(tmp_path, MLFLOW_TRACKING_URI=store, HQLT_ARTIFACTS=str(files))
    all_is_there(store, files)
