"""What a state is declared to weigh is what it weighs."""

import pytest
import torch

from hqlt_lab.check.for_layouts import beginnings, measured_is_declared
from hqlt_lab.check.subject import Subject, in_pieces, noise
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.state_size import StateSize, state_size
from hqlt_lab.registry import available

FULL = {"timing": {"name": "synchronous", "window": None}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("rule", available("update_rule"))
@torch.no_grad()
def test_every_composition_weighs_what_it_declares(rule, dtype):
    subject = Subject("update_rule", rule)
    packed = Layout(starts=beginnings([4, 6])[None])
    for others in [*subject.crossings(), FULL]:
        try:
            model = subject.model(**others, short_conv=3).to(dtype)
        except ConfigError:
            continue
        x = noise(1, 10, 8).to(dtype)
        for tokens, (_, state) in ((10, model(x)), (6, model(x, layout=packed))):
            measured_is_declared(model, f"{others}, ", state, tokens)


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
@torch.no_grad()
def test_a_state_does_not_grow_over_thousands_of_tokens(timing):
    model = build_model(width=16, heads=2, layers=2, timing={"name": timing, "window": 8}, short_conv=4)
    x = torch.randn(1, 3000, 16)
    for split in ([3000], [1000] * 3, [2600, *[1] * 400]):
        _, state = in_pieces(model, x, split)
        measured_is_declared(model, "", state, 3000)


def test_the_parts_are_the_papers_numbers_and_what_comes_on_top():
    config = ModelConfig(width=64, heads=2, timing={"name": "delayed_stream", "window": 16}, short_conv=4)
    assert state_size(HybridMemory(config), 500, torch.bfloat16) == StateSize(
        ring=2 * 16 * (32 + 32) * 2, gates=0, fw=2 * 32 * 32 * 4, conv=3 * 64 * 3 * 2, count=8
    )


def test_without_a_window_the_state_grows_with_the_text_and_can_be_declared_on_meta():
    with torch.device("meta"):
        memory = HybridMemory(ModelConfig(width=64, heads=2, mixer="kv_only", **FULL))
    assert state_size(memory, 1000).total - state_size(memory, 999).total == 2 * 64 * 4


def test_gates_that_wait_are_counted():
    timing = {"name": "delayed_chunk", "window": 16}
    config = ModelConfig(width=64, heads=2, update_rule="gated_delta", timing=timing)
    assert state_size(HybridMemory(config), 500).gates == 16 * 2 * 3 * 4
