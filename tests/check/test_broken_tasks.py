"""Tasks that are broken on purpose fail the line of the kit that they should."""

from dataclasses import dataclass

import numpy as np
import pytest

import hqlt_lab as lab
from hqlt_lab.check.kit import check_part
from hqlt_lab.errors import RegistryError
from hqlt_lab.registry import register
from hqlt_lab.tasks.modular_arithmetic import ModularArithmetic
from hqlt_lab.tasks.parity import Parity


@pytest.fixture(autouse=True)
def clean_book():
    with lab.temporarily():
        yield


@dataclass(frozen=True, kw_only=True)
class Careless(Parity):
    """Draws from a generator that nobody counts."""

    def track(self, draws, sizes, width):
        tokens, answers = super().track(draws, sizes, width)
        return np.where(np.random.default_rng().random(tokens.shape) < 0.01, 3 - tokens, tokens), answers


@dataclass(frozen=True, kw_only=True)
class Deaf(Parity):
    """Learns from the same examples whatever the seed."""

    def examples(self, split, seed, first, count):
        return super().examples(split, 0, first, count)


@dataclass(frozen=True, kw_only=True)
class Cheat(Parity):
    """Selects on what it is tested with."""

    def examples(self, split, seed, first, count):
        return super().examples("test" if split == "valid" else split, seed, first, count)


@dataclass(frozen=True, kw_only=True)
class Shifted(Parity):
    """Asks one token too late."""

    def examples(self, split, seed, first, count):
        batch = super().examples(split, seed, first, count)
        return batch._replace(labels=batch.labels.roll(1, dims=1))


@dataclass(frozen=True, kw_only=True)
class Leaky(Parity):
    """Leaves tokens behind the end."""

    def examples(self, split, seed, first, count):
        batch = super().examples(split, seed, first, count)
        return batch._replace(tokens=batch.tokens.clamp(min=1))


@dataclass(frozen=True, kw_only=True)
class Short(Parity):
    """Never as long as it says."""

    def sizes(self, draws, low, high):
        return super().sizes(draws, low, high - 1)


@dataclass(frozen=True, kw_only=True)
class Hopeful(Parity):
    """Says that guessing reaches less than it does."""

    @property
    def chance(self):
        return 25.0


@dataclass(frozen=True, kw_only=True)
class Mute(Parity):
    """Has the same word for two tokens."""

    @property
    def alphabet(self):
        return ("_", "bit", "bit")


FAILS = {
    Careless: {"examples are numbered", "training varies and tests do not"},
    Deaf: {"training varies and tests do not"},
    Cheat: {"training varies and tests do not"},
    Shifted: {"answers stand at tokens that are read", "examples can be read by people"},
    Leaky: {"rows are padded on the right"},
    Short: {"every size occurs"},
    Hopeful: {"guessing is what chance says"},
    Mute: {"examples can be read by people"},
}


@pytest.mark.parametrize("broken", FAILS, ids=lambda task: task.__name__)
def test_a_broken_task_fails_the_promise_that_it_breaks(broken):
    register("task", "broken")(broken)
    assert {line.promise for line in check_part("task", "broken").failed} == FAILS[broken]


def test_a_commoner_answer_is_told_and_no_failure():
    register("task", "brackets")(ModularArithmetic)
    lines = {line.promise: line for line in check_part("task", {"name": "brackets", "brackets": True}).lines}
    assert lines["guessing is what chance says"].outcome == "passed"
    assert lines["guessing is what chance says"].detail == "the commonest answer is right in 29.6 %, chance is 20 %"
    assert not {line.detail for line in check_part("task", "parity").lines if line.detail}


def test_worlds_and_texts_are_not_for_the_kit():
    for name in ("t_maze", "language"):
        with pytest.raises(RegistryError, match="tasks that write their examples themselves"):
            check_part("task", name)
