"""Of a rule whose gates are none, this is told, and nothing that follows from it."""

import pytest

import hqlt_lab as lab
from hqlt_lab.check.kit import check_part
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.ops.steps import Gates
from hqlt_lab.registry import register


@pytest.fixture(autouse=True)
def clean_book():
    with lab.temporarily():
        yield


NO_GATES = {
    "a tensor": (lambda beta: beta, "gates() returns a Tensor, and a named tuple of gates is needed: Gates("),
    "no number": (lambda beta: Gates(write=(beta - 2).log()), "write is no number (nan) for some tokens."),
    "a number": (
        lambda beta: Gates(write=0.5),
        "write is a float, and a tensor [B, H, T * writes] is needed, or None.",
    ),
    "another shape": (
        lambda beta: Gates(write=beta.mT),
        "write is [3, 5, 2] for 3 rows, 2 heads, 5 tokens of 1 writes, and [B, H, T * writes] is needed.",
    ),
}


@pytest.mark.parametrize(("made", "says"), NO_GATES.values(), ids=NO_GATES)
def test_of_a_rule_without_gates_this_is_told_and_nothing_else(made, says):
    @register("update_rule", "ungated")
    class Ungated(Delta):
        def gates(self, x):
            return made(super().gates(x).write)

    (line,) = check_part("update_rule", "ungated").lines
    assert (line.promise, line.outcome) == ("gates are in range", "failed")
    assert line.detail.startswith(says) and line.detail.endswith("Nothing else was tried.")
