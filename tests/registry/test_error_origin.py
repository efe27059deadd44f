"""Errors are attributed to the external component that raised them, and classified as permanent or temporary."""

import pytest
import torch

from hqlt_lab import registry
from hqlt_lab.errors import ConfigError

COMPONENTS = """
from hqlt_lab.registry import register

def raise_error(error):
    raise error

@register("timing", "first")
def first(error: object = None):
    raise_error(error)

@register("timing", "second")
def second(error: object = None):
    raise error

@register("timing", "third")
class Third:
    def __init__(self, error: object = None):
        raise error

@register("timing", "fourth")
class Fourth(Third): ...
"""


@pytest.fixture(autouse=True)
def external_components(tmp_path):
    with registry.temporary_components():
        (tmp_path / "components.py").write_text(COMPONENTS)
        registry.load_components(tmp_path / "components.py")
        yield


def find_failure(error, name="second"):
    try:
        registry.build("timing", {"name": name, "error": error})
    except Exception as raised:
        return registry.find_failing_component(raised)


def test_error_is_attributed_to_the_component_defined_above_the_line(tmp_path):
    assert (
        str(find_failure(KeyError("x"))) == f"timing 'second' ({tmp_path}/components.py, line 13) raised KeyError: 'x'."
    )
    assert find_failure(KeyError("x"), "first").name == "first"


def test_error_in_an_inherited_method_is_attributed_to_the_component_that_was_built():
    third, fourth = (find_failure(KeyError("x"), name) for name in ("third", "fourth"))
    assert (third.name, fourth.name) == ("third", "fourth") and third.line == fourth.line


def test_config_errors_and_disk_errors_are_not_component_failures():
    assert find_failure(ConfigError.at("window", "below_minimum", "at least 1 is needed.")) is None
    assert find_failure(OSError(28, "No space left on device")) is None


def test_error_of_a_builtin_component_is_not_a_component_failure():
    try:
        registry.find_factory("update_rule", "delta")(width="wide", heads=1)
    except TypeError as raised:
        assert registry.find_failing_component(raised) is None


@pytest.mark.parametrize(
    ("error", "is_permanent"),
    [
        (KeyError("x"), True),
        (NotImplementedError("step"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), False),
        (MemoryError(), False),
    ],
)
def test_programming_errors_are_permanent_and_device_errors_are_not(error, is_permanent):
    assert find_failure(error).is_permanent is is_permanent
