"""What all tests share."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .postgres import postgres  # noqa: F401

HERE = Path.cwd()
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers 80, and what is written to no terminal has no width
STORES = ("MLFLOW_TRACKING_URI", "HQLT_STORE")
for name in STORES:  # those of whoever runs the tests are not to be written to
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def everyone_begins_alike() -> None:
    """Whatever outlives its module and changes the working folder or a store would be felt far away."""
    assert Path.cwd() == HERE
    assert not [name for name in STORES if name in os.environ]


class SmallDisk:
    """A disk of its own that can be filled to its last byte, and freed again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ballast = folder, folder / "ballast"

    def fill(self) -> None:
        with self.ballast.open("wb", buffering=0) as file:
            for piece in (2**20, 2**12, 1):
                try:
                    while file.write(bytes(piece)):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self.ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Real memory that the system takes for a disk, where it lets us."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk to fill needs the right to mount one")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
