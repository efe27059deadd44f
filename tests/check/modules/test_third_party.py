"""The module check on published code: language models of transformers and fla's reference implementations.

The expected failures are those of the versions in constraints.txt; docs/check_module.md lists them.
"""

import pytest

import hqlt_lab as lab
from hqlt_lab.check.modules.call_options import parse_call_options
from hqlt_lab.check.modules.check_module import COMPARISON_LINES, run_line
from hqlt_lab.check.modules.target import make_adapter

pytestmark = pytest.mark.slow

# a model, and the lines that fail for it
MODELS = {
    "Qwen3NextForCausalLM": set(),
    "OlmoHybridForCausalLM": set(),
    "Mamba2ForCausalLM": {"packed documents are independent"},
    "BambaForCausalLM": set(),
    "FalconH1ForCausalLM": set(),
}


@pytest.mark.parametrize("name", MODELS)
def test_language_model_of_transformers(name):
    pytest.importorskip("transformers")
    report = lab.check_module(f"transformers:{name}", call={"chunk": 16})
    assert {result.check for result in report.failures} == MODELS[name], report
    causality, appended = report.results[:2]
    assert causality.detail == "every bit in float64, float32, bfloat16" and appended.outcome == "passed"
    if name == "Qwen3NextForCausalLM":
        assert "causal_conv1d_fn takes no seq_idx" in report.results[7].detail


def test_positions_of_bamba_restart_in_cached_calls_without_position_ids():
    pytest.importorskip("transformers")
    report = lab.check_module("transformers:BambaForCausalLM", call={"chunk": 16, "positions": False})
    expected = {"padding leaves the state", "decoding equals one pass", "continuing equals one pass"}
    assert {result.check for result in report.failures} == expected


CHANNEL_DECAY = {"tensor.g": "BTHK:log_decay"}
HEADS_FIRST = {"tensor.q": "BHTK", "tensor.k": "BHTK:unit", "tensor.v": "BHTV", "chunk": 32}
LOOKUPS = {"tensor.alpha": "BHTK:unit", "tensor.beta": "BHTK:unit", "multiple_of": 32}
PASSED, NOT_FINITE, NO_DECAY = "equal", "not finite", "no input is the logarithm"
DIFFERENT = "of the largest value (tolerance"
# module, two implementations, how they are called, and the results with weak and with strong decays
PAIRS = [
    ("comba", "naive_chunk_comba", "naive_recurrent_comba", {}, DIFFERENT, DIFFERENT),
    ("gated_delta_rule", "naive_chunk_gated_delta_rule", "naive_recurrent_gated_delta_rule", {}, PASSED, PASSED),
    ("simple_gla", "naive_chunk_simple_gla", "naive_recurrent_simple_gla", {}, PASSED, PASSED),
    ("simple_gla", "naive_parallel_simple_gla", "naive_recurrent_simple_gla", {}, PASSED, PASSED),
    ("simple_gla", "naive_parallel_simple_gla", "naive_chunk_simple_gla", {}, PASSED, PASSED),
    ("kda", "naive_chunk_kda", "naive_recurrent_kda", CHANNEL_DECAY | {"multiple_of": 64}, PASSED, NOT_FINITE),
    (
        "gdn2",
        "naive_chunk_gdn2",
        "naive_recurrent_gdn2",
        CHANNEL_DECAY | {"tensor.b": "BTHK:strength", "tensor.w": "BTHV:strength"},
        PASSED,
        NOT_FINITE,
    ),
    (
        "delta_rule",
        "delta_rule_chunkwise",
        "delta_rule_recurrence",
        HEADS_FIRST | {"tensor.beta": "BHT:strength", "multiple_of": 32},
        PASSED,
        NO_DECAY,
    ),
    (
        "delta_rule",
        "delta_rule_parallel",
        "delta_rule_chunkwise",
        HEADS_FIRST | {"tensor.beta": "BHT:strength", "multiple_of": 128},
        PASSED,
        NO_DECAY,
    ),
    ("linear_attn", "naive_chunk_linear_attn", "naive_recurrent_linear_attn", {"multiple_of": 64}, PASSED, NO_DECAY),
    (
        "generalized_delta_rule.dplr",
        "dplr_chunkwise",
        "dplr_recurrence",
        HEADS_FIRST | LOOKUPS | {"tensor.gk": "BHTK:log_decay"},
        PASSED,
        PASSED,
    ),
    (
        "generalized_delta_rule.iplr",
        "iplr_chunkwise",
        "iplr_recurrence",
        HEADS_FIRST | LOOKUPS,
        PASSED,
        NO_DECAY,
    ),
]


@pytest.mark.parametrize(("family", "first", "second", "call", "weak", "strong"), PAIRS, ids=lambda value: str(value))
def test_reference_implementations_of_fla_are_crossed(family, first, second, call, weak, strong):
    pytest.importorskip("fla")
    options = parse_call_options(call)
    adapters = [make_adapter(f"fla.ops.{family}.naive:{name}", {}, options) for name in (first, second)]
    for line, expected in zip(COMPARISON_LINES, (weak, strong), strict=True):
        result = run_line(line.__name__, lambda line=line: line(*adapters))
        if expected == PASSED:
            assert result.outcome == "passed", result
        else:
            outcome = "not applicable" if expected == NO_DECAY else "failed"
            assert result.outcome == outcome and expected in result.detail, result


def test_reference_of_comba_fails_the_check_only_against_the_other_reference():
    pytest.importorskip("fla")
    report = lab.check_module(
        "fla.ops.comba.naive:naive_chunk_comba", against="fla.ops.comba.naive:naive_recurrent_comba"
    )
    assert {result.check for result in report.failures} == {
        "dtype is kept",  # float32 for every input
        "implementations are equal",
        "implementations are equal with strong decays",
    }
