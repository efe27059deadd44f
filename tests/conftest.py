"""What all tests share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)
