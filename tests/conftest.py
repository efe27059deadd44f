"""Fixtures for all tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .postgres import postgres  # noqa: F401

WORKING_FOLDER = Path.cwd()
os.environ.pop("COLUMNS", None)  # pytest-xdist sets 80 for its workers; output without a terminal has no width
STORE_VARIABLES = ("MLFLOW_TRACKING_URI", "HQLT_STORE")
for name in STORE_VARIABLES:  # tests must not write to the stores of the user
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def clean_environment() -> None:
    """Check that no earlier module has left another working folder or store, which would make later tests fail."""
    assert Path.cwd() == WORKING_FOLDER
    assert not [name for name in STORE_VARIABLES if name in os.environ]


class SmallDisk:
    """A separate disk that can be filled to its last byte and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.filler = folder, folder / "ballast"

    def fill(self) -> None:
        with self.filler.open("wb", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self.filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A tmpfs of 32 MB; skips the test where mounting is not permitted."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk to fill needs the right to mount one")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
