"""Tasks that are broken on purpose fail the intended conformance check."""

from dataclasses import dataclass

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.check.conformance import check_component
from hqlt_lab.registry import register
from hqlt_lab.tasks.state_tracking.modular_arithmetic import ModularArithmetic
from hqlt_lab.tasks.state_tracking.parity import Parity
from tests.issues import raises_issue


@pytest.fixture(autouse=True)
def clean_registry():
    with lab.temporary_components():
        yield


@dataclass(frozen=True, kw_only=True)
class UncountedDraws(Parity):
    """Draws random numbers that do not depend on the example index."""

    def track_state(self, rng, sizes, width):
        tokens, labels = super().track_state(rng, sizes, width)
        return np.where(np.random.default_rng().random(tokens.shape) < 0.01, 3 - tokens, tokens), labels


@dataclass(frozen=True, kw_only=True)
class IgnoresSeed(Parity):
    """Has the same training examples for every run seed."""

    def get_examples(self, split, seed, first, count):
        return super().get_examples(split, 0, first, count)


@dataclass(frozen=True, kw_only=True)
class ValidIsTest(Parity):
    """Has the same examples in valid and test."""

    def get_examples(self, split, seed, first, count):
        return super().get_examples("test" if split == "valid" else split, seed, first, count)


@dataclass(frozen=True, kw_only=True)
class ShiftedLabels(Parity):
    """Has its labels one token too late."""

    def get_examples(self, split, seed, first, count):
        batch = super().get_examples(split, seed, first, count)
        return batch._replace(labels=batch.labels.roll(1, dims=1))


@dataclass(frozen=True, kw_only=True)
class TokensInPadding(Parity):
    """Has tokens behind the end of an example."""

    def get_examples(self, split, seed, first, count):
        batch = super().get_examples(split, seed, first, count)
        return batch._replace(tokens=batch.tokens.clamp(min=1))


@dataclass(frozen=True, kw_only=True)
class TooShort(Parity):
    """Never reaches the declared length."""

    def draw_sizes(self, rng, low, high):
        return super().draw_sizes(rng, low, high - 1)


@dataclass(frozen=True, kw_only=True)
class WrongChanceLevel(Parity):
    """Declares a lower chance level than guessing has."""

    @property
    def chance_level(self):
        return 25.0


@dataclass(frozen=True, kw_only=True)
class AmbiguousAlphabet(Parity):
    """Has the same word for two tokens."""

    @property
    def alphabet(self):
        return ("_", "bit", "bit")


FAILED_CHECKS = {
    UncountedDraws: {"examples are reproducible by index", "only training depends on the seed"},
    IgnoresSeed: {"only training depends on the seed"},
    ValidIsTest: {"only training depends on the seed"},
    ShiftedLabels: {"labels are inside their example", "examples can be decoded"},
    TokensInPadding: {"rows are padded on the right"},
    TooShort: {"every size occurs"},
    WrongChanceLevel: {"chance level is as declared"},
    AmbiguousAlphabet: {"examples can be decoded"},
}


@pytest.mark.parametrize("broken_task", FAILED_CHECKS, ids=lambda task: task.__name__)
def test_broken_task_fails_the_intended_check(broken_task):
    register("task", "broken")(broken_task)
    assert {result.check for result in check_component("task", "broken").failures} == FAILED_CHECKS[broken_task]


def test_label_that_is_more_common_is_reported_but_not_a_failure():
    register("task", "brackets")(ModularArithmetic)
    report = check_component("task", {"name": "brackets", "brackets": True})
    (result,) = [result for result in report.results if result.check == "chance level is as declared"]
    assert result.outcome == "passed"
    assert result.detail == "the most frequent label has 29.6 %, above the chance level of 20 %"
    assert not {result.detail for result in check_component("task", "parity").results if result.detail}


def test_environments_and_the_language_task_cannot_be_checked():
    for name in ("t_maze", "language"):
        with raises_issue("task", "task_without_checks"):
            check_component("task", name)
