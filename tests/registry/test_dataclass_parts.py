"""A part may be a frozen dataclass: its fields are its options, its words those of its file."""

from dataclasses import dataclass

import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Both:
    range: tuple[int, int] = (3, 40)
    rate: float = 1.0

    def __post_init__(self):
        wrong = [f"{name}: no." for name, value in vars(self).items() if value in (0, [0, 0])]
        if wrong:
            raise ConfigError("\n".join(wrong))


@pytest.fixture(autouse=True)
def registered():
    with lab.temporarily():
        lab.register("timing", "both")(Both)
        yield


def test_the_signature_that_a_dataclass_writes_down_is_not_its_words():
    assert lab.describe("timing", "both").doc == __doc__


def test_a_default_is_spelled_as_in_yaml():
    options = lab.options("timing", "both")
    assert options["range"].default == [3, 40]
    assert str(options["range"]) == "range: list of int = [3, 40]"


def test_each_of_several_mistakes_has_its_place():
    with pytest.raises(ConfigError) as error:
        lab.build("timing", {"name": "both", "range": [0, 0], "rate": 0}, at="model.timing")
    assert str(error.value) == "model.timing.range: no.\nmodel.timing.rate: no."
