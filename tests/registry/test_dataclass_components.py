"""A component can be a frozen dataclass: its fields are its options, and the module docstring documents it."""

from dataclasses import dataclass

import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError, ConfigIssue


@dataclass(frozen=True, kw_only=True)
class RangeTiming:
    range: tuple[int, int] = (3, 40)
    rate: float = 1.0

    def __post_init__(self):
        issues = [ConfigIssue(name, "empty", "no.") for name, value in vars(self).items() if value in (0, [0, 0])]
        if issues:
            raise ConfigError(*issues)


@pytest.fixture(autouse=True)
def registered_timing():
    with lab.temporary_components():
        lab.register("timing", "range_timing")(RangeTiming)
        yield


def test_generated_docstring_of_a_dataclass_is_not_its_documentation():
    assert lab.describe("timing", "range_timing").doc == __doc__


def test_tuple_default_is_a_list_as_in_yaml():
    options = lab.options("timing", "range_timing")
    assert options["range"].default == [3, 40]
    assert str(options["range"]) == "range: list of int = [3, 40]"


def test_each_of_several_errors_is_prefixed_with_its_location():
    with pytest.raises(ConfigError) as error:
        lab.build("timing", {"name": "range_timing", "range": [0, 0], "rate": 0}, location="model.timing")
    assert [issue.path for issue in error.value.issues] == ["model.timing.range", "model.timing.rate"]
    assert str(error.value) == "model.timing.range: no.\nmodel.timing.rate: no."
