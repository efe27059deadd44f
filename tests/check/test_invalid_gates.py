"""A rule with invalid gates fails that check, and no further check is run."""

import pytest
import torch.nn.functional as F

import hqlt_lab as lab
from hqlt_lab.check.conformance import check_component
from hqlt_lab.components.update_rules._base import LinearInputs
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
    "no floating-point numbers": (
        lambda beta: Gates(write=beta > 0.5),
        "write is bool, but a floating-point tensor is needed.",
    ),
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
        "write has 3 channels, but the values have 4.",
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


HINT = " A rule with gates or lookup keys per key channel declares has_key_channels = True."
INVALID_SCAN_INPUTS = {
    "a plain tuple": (
        False,
        lambda q, k, v, gates: (q, k, v, gates),
        "scan_inputs() returns a tuple, but LinearInputs(q, k, v, gates) is needed.",
    ),
    "nothing": (
        False,
        lambda q, k, v, gates: None,
        "scan_inputs() returns a NoneType, but LinearInputs(q, k, v, gates) is needed.",
    ),
    "keys with more channels than queries": (
        False,
        lambda q, k, v, gates: LinearInputs(q, F.pad(k, (0, 3)), v, gates),
        "the queries have 4 channels, but the keys have 7.",
    ),
    "more keys than tokens": (
        False,
        lambda q, k, v, gates: LinearInputs(q, F.pad(k, (0, 0, 0, 1)), v, gates),
        "the keys are [3, 2, 6, 4], but the queries are [3, 2, 5, 4]: every token needs as many keys.",
    ),
    "too few values": (
        False,
        lambda q, k, v, gates: LinearInputs(q, k, v[:, :, 1:], gates),
        "v is [3, 2, 4, 4], but the keys are [3, 2, 5, 4].",
    ),
    "a lookup key of another size": (
        True,
        lambda q, k, v, gates: LinearInputs(q, k, v, gates._replace(lookup=F.pad(k, (0, 1)))),
        "lookup has 5 channels, but the keys have 4.",
    ),
    "a lookup key of another size, and no declaration": (
        False,
        lambda q, k, v, gates: LinearInputs(q, k, v, gates._replace(early_lookup=F.pad(k, (0, 1)))),
        "early_lookup has 5 channels, but the keys have 4." + HINT,
    ),
    "a lookup key without channels": (
        False,
        lambda q, k, v, gates: LinearInputs(q, k, v, gates._replace(lookup=gates.erase)),
        "lookup is [3, 2, 5], but a key needs channels: [3, 2, 5, 4].",
    ),
    "two lookup keys": (
        False,
        lambda q, k, v, gates: LinearInputs(q, k, v, gates._replace(lookup=k, early_lookup=k)),
        "lookup and early_lookup are both given, but a step looks up either after its decay or before it.",
    ),
    "strengths for one of two writes": (
        False,
        lambda q, k, v, gates: LinearInputs(q, k.repeat(1, 1, 2, 1), v, Gates(erase=gates.erase)),
        "erase is [3, 2, 5], but the lookup keys are [3, 2, 10, 4].",
    ),
    "strengths of all writes for lookups of the first": (
        False,
        lambda q, k, v, gates: LinearInputs(
            q, k.repeat(1, 1, 2, 1), v, Gates(erase=gates.erase.repeat(1, 1, 2), lookup=k)
        ),
        "erase is [3, 2, 10], but the lookup keys are [3, 2, 5, 4].",
    ),
}


@pytest.mark.parametrize(
    ("declares_channels", "scan_inputs", "message"), INVALID_SCAN_INPUTS.values(), ids=INVALID_SCAN_INPUTS
)
def test_rule_with_invalid_scan_inputs_fails_one_check_with_one_sentence(declares_channels, scan_inputs, message):
    @register("update_rule", "invalid_inputs")
    class InvalidInputs(Delta):
        has_key_channels = declares_channels

        def scan_inputs(self, q, k, v, gates):
            return scan_inputs(q, k, v, gates)

    (result,) = check_component("update_rule", "invalid_inputs").results
    assert (result.check, result.outcome) == ("gates are in range", "failed")
    assert result.detail == f"{message} The other checks were skipped."
