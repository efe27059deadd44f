"""`make` shows what it installs, and stops if an installation fails."""

import os
import subprocess
from pathlib import Path

import pytest

import hqlt_lab

ROOT = Path(hqlt_lab.__file__).parents[1]
# stands for the Python of the environment: "installs" by printing what pip prints
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *"pip "*"install "*"-e ."*)
    echo "Requirement already satisfied: torch in somewhere"
    echo "Collecting mlflow"
    echo "  Downloading mlflow-3.0-py3-none-any.whl.metadata (29 kB)"
    echo "Downloading mlflow-3.0-py3-none-any.whl (29.4 MB)"
    exit $STATUS;;
  *"pip "*) echo "pip: $*";;
esac
"""


def run_make(folder: Path, status: int) -> subprocess.CompletedProcess[str]:
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    command = ["make", f"VENV={folder}", f"{folder}/base"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"STATUS": str(status)}, capture_output=True, text=True)


@pytest.mark.parametrize("status", [0, 1])
def test_installation_shows_its_stages_and_one_line_per_fetched_package(status, tmp_path):
    process = run_make(tmp_path, status)
    lines = process.stdout.splitlines()
    torch = next(number for number, line in enumerate(lines) if line.startswith("1 of 2: torch "))
    packages = next(number for number, line in enumerate(lines) if line.startswith("2 of 2: hqlt_lab "))
    assert torch < packages and lines[packages + 1] == "Downloading mlflow-3.0-py3-none-any.whl (29.4 MB)"
    assert "satisfied" not in process.stdout and "metadata" not in process.stdout and " -q " not in process.stdout
    assert (process.returncode == 0) == (status == 0) == (tmp_path / "base").exists()
    assert not (tmp_path / "base.failed").exists()
