"""The declared size of a state equals its actual size."""

import pytest
import torch

from hqlt_lab.check.common_checks import assert_declared_state_size, document_starts
from hqlt_lab.check.component_under_test import ComponentCase, count_held_bytes, fixed_noise, run_in_chunks
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.analysis.state_size import StateSize, state_size
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.state import select_rows
from hqlt_lab.registry import available

FULL = {"timing": {"name": "synchronous", "window": None}}


@pytest.mark.parametrize("rule", available("update_rule"))
@torch.no_grad()
def test_declared_size_is_right_with_every_pair_of_components(rule):
    case = ComponentCase("update_rule", rule)
    packed = Layout(doc_start=document_starts([4, 6])[None])
    models = [(FULL, case.build_model(**FULL, short_conv=3)), *case.pairwise_models(short_conv=3)]
    for other_components, model in models:
        if isinstance(model, ConfigError):
            continue
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            model, x = model.to(dtype), fixed_noise(1, 10, 8).to(dtype)
            for tokens, (_, state) in ((10, model(x)), (6, model(x, layout=packed))):
                assert_declared_state_size(model, f"{other_components}, {dtype}, ", state, tokens)


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
@torch.no_grad()
def test_state_does_not_grow_over_thousands_of_tokens(timing):
    model = build_model(width=16, heads=2, layers=2, timing={"name": timing, "window": 8}, short_conv=4)
    x = torch.randn(1, 3000, 16)
    for split in ([3000], [1000] * 3, [2600, *[1] * 400]):
        _, state = run_in_chunks(model, x, split)
        assert_declared_state_size(model, "", state, 3000)


def test_fields_have_the_sizes_of_the_paper_plus_convolutions():
    config = ModelConfig(width=64, heads=2, timing={"name": "delayed_stream", "window": 16}, short_conv=4)
    assert state_size(HybridMemory(config), 500, torch.bfloat16) == StateSize(
        kv_cache=2 * 16 * (32 + 32) * 2, gates=0, fw=2 * 32 * 32 * 4, conv=3 * 64 * 3 * 2, document_length=8
    )


def test_state_without_a_window_grows_with_the_sequence_and_can_be_computed_on_meta():
    with torch.device("meta"):
        memory = HybridMemory(ModelConfig(width=64, heads=2, mixer="kv_only", **FULL))
    assert state_size(memory, 1000).total - state_size(memory, 999).total == 2 * 64 * 4


CACHED_GATES = [{"name": "delayed_chunk", "window": 16}, {"name": "delayed_stream", "window": 16, "gates": "own"}]


@pytest.mark.parametrize("timing", CACHED_GATES, ids=str)
def test_cached_gates_that_are_one_tensor_are_counted_once(timing):
    config = ModelConfig(width=64, heads=2, update_rule="gated_delta", timing=timing)
    assert state_size(HybridMemory(config), 500).gates == 16 * 2 * 2 * 4  # keep and beta, which erases and writes


@pytest.mark.parametrize("timing", CACHED_GATES, ids=str)
@torch.no_grad()
def test_bytes_of_a_layer_that_caches_gates_equal_those_counted_by_hand(timing):
    model = build_model(width=64, heads=2, layers=1, update_rule="delta", timing=timing, short_conv=4)
    # 16 tokens are cached with 64 numbers of a key, 64 of a value and 2 of beta, one for each head: 16 * 130 * 4 = 8320
    # the fast weights of 2 heads have 32 * 32 numbers: 8192; three convolutions carry 3 tokens of 64 numbers: 2304
    # the length of the document is an integer of 8 bytes: 8320 + 8192 + 2304 + 8 = 18824
    assert state_size(model.memories[0], 500).total == 18_824
    _, state = model(torch.randn(1, 500, 64))
    assert count_held_bytes(state) == 18_824


@pytest.mark.parametrize("timing", CACHED_GATES, ids=str)
@torch.no_grad()
def test_state_holds_tied_gates_once_also_after_selecting_rows(timing):
    model = build_model(width=16, heads=2, layers=1, update_rule="gated_delta", timing=timing)
    _, state = model(torch.randn(2, 5, 16))
    for rows in ([0], [1]):
        state_of_row = select_rows(state, torch.tensor(rows))
        assert state_of_row[0].kv_cache.gates.erase is state_of_row[0].kv_cache.gates.write
        _, state_of_row = model(torch.randn(1, 3, 16), state_of_row)
        assert count_held_bytes(state_of_row) == state_size(model.memories[0], 8).total


def test_rules_that_cache_one_number_per_head_have_states_of_one_size():
    sizes_by_rule = {
        rule: state_size(HybridMemory(ModelConfig(width=64, heads=2, update_rule=rule, timing=CACHED_GATES[0])), 500)
        for rule in ("delta", "tanh_delta")
    }
    assert sizes_by_rule["delta"] == sizes_by_rule["tanh_delta"]  # both cache one number per head: beta
