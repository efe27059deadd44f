"""What all tests share."""

import os
from pathlib import Path

import pytest
import torch

HERE = Path.cwd()
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers 80, and what is written to no terminal has no width


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def everyone_begins_in_the_same_folder() -> None:
    """A fixture that outlives its module and changes the working folder would be felt far away."""
    assert Path.cwd() == HERE
