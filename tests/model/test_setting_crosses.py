"""Settings of hybrids in combination: each model streams, pads and packs exactly, and has the state that it declares.

The combinations contain every pair of values of two axes.  They are drawn with a fixed seed, because all combinations
are too many.  The checks in tests/check/test_conformance.py combine all components of every kind in the same way.
"""

from itertools import combinations
from random import Random

import pytest
import torch

from hqlt_lab.check.common_checks import (
    PADDED_AND_PACKED,
    assert_declared_state_size,
    assert_streaming_equals_one_pass,
)
from hqlt_lab.check.component_under_test import fixed_noise, run_in_chunks, small_spec
from hqlt_lab.check.unpacked_reference import assert_matches_separate_documents
from hqlt_lab.model.analysis.component_sizes import sizes
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available
from tests.issues import raises_issue

BOTH_OPTIONS = {"qk_norm": True, "gate": "channel", "logit_scale": "log_length"}
AXES = {
    "update_rule": ["delta", "linear_attention", "kda", "rwkv7", "tanh_delta", {"name": "delta_product", "steps": 2}],
    "attention": [
        "softmax",
        {"name": "softmax", **BOTH_OPTIONS},
        {"name": "softmax", "gate": "head"},
        "forgetting",
        {"name": "forgetting", **BOTH_OPTIONS},
    ],
    "timing": [
        *(small_spec("timing", name) for name in available("timing")),
        {"name": "synchronous", "window": None},
        {"name": "delayed_stream", "window": 3, "gates": "own"},
        {"name": "delayed_chunk", "window": 3, "hold": 2},
    ],
    "sinks": [0, 2],
    "meta_tokens": [0, 2],
    "mixer": [
        *available("mixer"),
        {"name": "head_split", "fw_heads": 2},
        ["vector", "kv_only"],
        ["kv_only", "normalized"],
        ["fw_only", "kv_only"],
    ],
    "positions": available("positions"),
    "feature_map": [None, {"name": "dpfp", "norm": "l2"}, {"name": "taylor", "dim": 2}],
    "mlp": ["swiglu", "none", ["none", "gelu"]],
    "short_conv": [0, 3],
    "output_gate": [False, True],
    "sizes": [
        {},
        {"head_dim": 6},
        {"kv": {"groups": 1}},
        {"projections": "separate"},
        {"projections": "separate", "fw": {"key_dim": 3, "value_dim": 5}, "kv": {"groups": 1, "key_dim": 6}},
        {"projections": "separate", "head_dim": 6, "fw": {"heads": 3}, "kv": {"heads": 1, "value_dim": 7}},
    ],
}
NOT_NORMALIZED, OTHER_CHANNELS = "keys_not_normalized", "features_differ_from_key_channels"
REJECTED = {  # feature maps that a rule does not accept, and why
    ("delta", "taylor"): NOT_NORMALIZED,
    ("delta_product", "taylor"): NOT_NORMALIZED,
    ("kda", "taylor"): NOT_NORMALIZED,
    ("kda", "dpfp"): OTHER_CHANNELS,
    ("rwkv7", "taylor"): OTHER_CHANNELS,
    ("rwkv7", "dpfp"): OTHER_CHANNELS,
}


def component_name(spec):
    return spec["name"] if isinstance(spec, dict) else spec


def is_accepted(row):
    components = tuple(component_name(row.get(kind)) for kind in ("update_rule", "feature_map"))
    sets_heads = any("heads" in row.get("sizes", {}).get(name, {}) for name in ("fw", "kv"))
    return components not in REJECTED and not (sets_heads and component_name(row.get("mixer")) == "head_split")


def list_pairs(row):
    """Return all pairs of values of a row, as ((axis, value), (axis, value))."""
    return set(combinations(sorted((axis, repr(value)) for axis, value in row.items()), 2))


def draw_rows(axes, seed=0):
    """Return combinations that contain every accepted pair of values of two axes.

    Each contains a pair that is still missing.  Each other value is the one of a few random candidates that adds most
    missing pairs.
    """
    random, rows = Random(seed), []
    accepted = [
        {axis: value, other: other_value}
        for axis, other in combinations(axes, 2)
        for value in axes[axis]
        for other_value in axes[other]
    ]
    missing = {pair for row in accepted if is_accepted(row) for pair in list_pairs(row)}
    for row in accepted:
        if not list_pairs(row) <= missing:
            continue
        row = dict(row)
        for axis in random.sample(sorted(set(axes) - set(row)), len(axes) - 2):
            values = [value for value in axes[axis] if is_accepted(row | {axis: value})]
            random.shuffle(values)
            row[axis] = max(values, key=lambda value: len(list_pairs(row | {axis: value}) & missing))
        missing -= list_pairs(row)
        rows.append({axis: row[axis] for axis in axes})
    return rows


ROWS = draw_rows(AXES)


def build_row(row, **changes):
    """Return a float64 model of two layers with the settings of a row."""
    row = row | changes
    settings = {axis: value for axis, value in row.items() if axis not in ("sinks", "sizes")} | row["sizes"]
    settings["timing"] = row["timing"] | {"sinks": row["sinks"]}
    sizes = {"width": 8, "heads": 2, "layers": 2, "mlp_width": 16, "init_std": 0.5}
    return build_model(**sizes | settings).double()


def test_rows_contain_every_accepted_pair_of_values():
    pairs = {pair for row in ROWS for pair in list_pairs(row)}
    for axis, other in combinations(AXES, 2):
        for value in AXES[axis]:
            for other_value in AXES[other]:
                pair = {axis: value, other: other_value}
                assert (list_pairs(pair) <= pairs) == is_accepted(pair)
    assert draw_rows(AXES) == ROWS and len(ROWS) < 150


@pytest.mark.parametrize(("rule", "feature_map", "code"), [(*pair, code) for pair, code in REJECTED.items()])
def test_pairs_left_out_are_rejected(rule, feature_map, code):
    with raises_issue("feature_map", code):
        build_model(width=8, heads=2, update_rule=rule, feature_map=feature_map)


def test_heads_of_a_memory_are_rejected_if_the_mixer_sets_them():
    with raises_issue("fw.heads", "heads_set_by_mixer"):
        build_model(width=8, heads=2, mixer="head_split", fw={"heads": 3})


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_combination_of_settings_conforms(row):
    model, x = build_row(row), fixed_noise(2, 7, 8)
    assert_streaming_equals_one_pass(model, "", ([4, 3], [1] * 7))
    with torch.no_grad():
        assert_matches_separate_documents(model, "", x, PADDED_AND_PACKED, [None, [4, 3]])
        for split in ([2], [10], [5, 1, 4]):
            _, state = run_in_chunks(model, fixed_noise(1, sum(split), 8), split)
            assert_declared_state_size(model, "", state, sum(split))
    model(x)[0].square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert sizes(model, 7).total.parameters == sum(parameter.numel() for parameter in model.parameters())


def assert_accurate(row, actual, expected):
    """Assert that the outputs [B, T, width] in half precision are accurate at most tokens.

    A few tokens are ill-conditioned, and most are if nothing bounds the keys that tanh_delta erases under.
    """
    error = (actual - expected).abs().amax(-1) / expected.abs().max()  # [B, T]
    is_bounded = {component_name(row["update_rule"]), component_name(row["feature_map"])} != {"tanh_delta", "taylor"}
    assert error.isfinite().all() and error.median() < (0.03 if is_bounded else 0.3)


@pytest.mark.parametrize("row", ROWS, ids=str)
@torch.no_grad()
def test_combination_of_settings_is_accurate_in_mixed_precision(row):
    model, x = build_row(row).float(), fixed_noise(2, 40, 8).float()
    expected, _ = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        actual, state = model(x)
    assert_accurate(row, actual, expected)
    assert {layer.fw.dtype for layer in state if layer.fw is not None} <= {torch.float32}
    decays = [layer.attention.decay for layer in state if layer.attention is not None]
    assert {decay.dtype for decay in decays if decay is not None} <= {torch.float64}
