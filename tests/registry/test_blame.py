"""Which errors are laid at the door of a part from outside, and which of them would come again."""

import pytest
import torch

from hqlt_lab import registry
from hqlt_lab.errors import ConfigError

PARTS = """
from hqlt_lab.registry import register

def raised(error):
    raise error

@register("timing", "first")
def first(error: object = None):
    raised(error)

@register("timing", "second")
def second(error: object = None):
    raise error
"""


@pytest.fixture(autouse=True)
def parts(tmp_path):
    with registry.temporarily():
        (tmp_path / "parts.py").write_text(PARTS)
        registry.include(tmp_path / "parts.py")
        yield


def blame_for(error, name="second"):
    try:
        registry.build("timing", {"name": name, "error": error})
    except Exception as raised:
        return registry.blamed(raised)


def test_a_file_of_several_parts_is_blamed_for_the_one_that_stands_above(tmp_path):
    assert str(blame_for(KeyError("x"))) == f"timing 'second' ({tmp_path}/parts.py, line 13) raised KeyError: 'x'."
    assert blame_for(KeyError("x"), "first").name == "first"


def test_complaints_and_the_disk_are_not_laid_at_its_door():
    assert blame_for(ConfigError("window: at least 1 is needed.")) is None
    assert blame_for(OSError(28, "No space left on device")) is None


def test_what_the_labs_own_parts_raise_is_not_explained_away():
    try:
        registry.find("update_rule", "delta")(width="wide", heads=1)
    except TypeError as raised:
        assert registry.blamed(raised) is None


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (KeyError("x"), True),
        (NotImplementedError("step"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), False),
        (MemoryError(), False),
    ],
)
def test_a_slip_comes_again_and_a_fault_of_the_machine_may_not(error, again):
    assert blame_for(error).permanent is again
