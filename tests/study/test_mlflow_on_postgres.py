"""MLflow on PostgreSQL, as described in docs/cluster.md: behind a tracking server, or without one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from hqlt_lab.track.ui.network import find_free_port
from hqlt_lab.track.ui.server import stop_server, wait_until_healthy

from .conftest import TINY

pytestmark = pytest.mark.slow
HQLT = Path(sys.executable).parent / "hqlt"
CELLS = 2


@contextmanager
def tracking_server(store: str, artifacts: Path, folder: Path) -> Iterator[str]:
    """Run an MLflow server on a free port, and yield its URL."""
    port, log = find_free_port("127.0.0.1"), folder / "server.log"
    options = ["--backend-store-uri", store, "--artifacts-destination", artifacts, "--host", "127.0.0.1"]
    with log.open("wb") as out:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", *options, "--port", str(port)]
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until_healthy(server, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_server(server)


def run_study(folder: Path, **environment: str) -> None:
    (folder / "tiny.yaml").write_text(f"{TINY}seeds: {CELLS}\n")
    process = subprocess.run(
        [HQLT, "run", "tiny.yaml"], cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "is not up to date" not in process.stdout + process.stderr


def assert_runs_complete(store: str, artifacts: Path) -> None:
    """Check that every cell is a run with its files, and that every point of its loss curve is stored once."""
    with create_engine(store, poolclass=NullPool).connect() as connection:
        runs = connection.execute(text("select count(*) from tags where key = 'hqlt.kind' and value = 'cell'"))
        points = connection.execute(text("select count(*) from metrics where key = 'train/loss'"))
        assert (runs.scalar(), points.scalar()) == (CELLS, 6 * CELLS)
    assert len(list(artifacts.glob("**/cell.json"))) == CELLS


def test_tracking_server_on_postgres_has_all_runs_and_artifacts(tmp_path, postgres):
    store, artifacts = postgres.create_database().replace("postgresql:", "postgresql+psycopg:"), tmp_path / "files"
    with tracking_server(store, artifacts, tmp_path) as url:
        ledger_url = postgres.create_database()
        for _ in range(2):  # the second time there is nothing to train and nothing to send
            run_study(tmp_path, MLFLOW_TRACKING_URI=url, HQLT_STORE=ledger_url)
    assert_runs_complete(store, artifacts)


def test_postgres_without_a_server_stores_artifacts_in_the_configured_folder(tmp_path, postgres):
    store, artifacts = postgres.create_database().replace("postgresql:", "postgresql+psycopg:"), tmp_path / "files"
    run_study(tmp_path, MLFLOW_TRACKING_URI=store, HQLT_ARTIFACTS=str(artifacts))
    assert_runs_complete(store, artifacts)
