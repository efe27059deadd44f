"""A rule with invalid gates fails that check, and no further check is run."""

import pytest

import hqlt_lab as lab
from hqlt_lab.check.conformance import check_component
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@pytest.fixture(autouse=True)
def clean_registry():
    with lab.temporary_components():
        yield


INVALID_GATES = {
    "a tensor": (lambda beta: beta, "gates() returns a Tensor, but a named tuple of gates is needed: Gates("),
    "no number": (lambda beta: Gates(write=(beta - 2).log()), "write is NaN for some tokens."),
    "a number": (
        lambda beta: Gates(write=0.5),
        "write is a float, but a tensor [B, H, T * writes] or [B, H, T * writes, channels] is needed, or None.",
    ),
    "another shape": (
        lambda beta: Gates(write=beta.mT),
        "write is [3, 5, 2] for 3 rows, 2 heads, 5 tokens of 1 writes, but [B, H, T * writes] or "
        "[B, H, T * writes, channels] is needed.",
    ),
    "a wrong number of channels": (
        lambda beta: Gates(write=beta[..., None].expand(-1, -1, -1, 3)),
        "write has 3 channels, but 4 are needed.",
    ),
}


@pytest.mark.parametrize(("make_gates", "message"), INVALID_GATES.values(), ids=INVALID_GATES)
def test_rule_with_invalid_gates_fails_this_check_alone(make_gates, message):
    @register("update_rule", "invalid_gates")
    class InvalidGates(Delta):
        def gates(self, x):
            return make_gates(super().gates(x).write)

    (result,) = check_component("update_rule", "invalid_gates").results
    assert (result.check, result.outcome) == ("gates are in range", "failed")
    assert result.detail.startswith(message) and result.detail.endswith("The other checks were skipped.")
