"""Gates with dimensions of their own: a step rule may have them, and a linear rule rejects them by name."""

import re
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import hqlt_lab as lab
from hqlt_lab.components.update_rules._base import LinearRule, StepRule
from hqlt_lab.model.analysis.backend_report import layer_backends
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register
from tests.issues import raises_issue

MODEL = {"width": 16, "heads": 2, "layers": 1, "vocabulary": 11, "timing": {"name": "synchronous", "window": 4}}
LENGTH = 12


class ChannelGates(NamedTuple):
    log_keep: Tensor  # [B, H, T, K]
    write: Tensor  # [B, H, T, K, V]


class ChannelRule(StepRule):
    def __init__(self, width: int, heads: int, key_dim: int, value_dim: int) -> None:
        super().__init__()
        self.heads, self.value_dim = heads, value_dim
        self.to_keep = nn.Linear(width, heads * key_dim, bias=False)
        self.to_write = nn.Linear(width, heads * key_dim, bias=False)

    def gates(self, x: Tensor) -> ChannelGates:
        log_keep, write = (
            linear(x).sigmoid().log().unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.to_keep, self.to_write)
        )
        return ChannelGates(log_keep, write.exp()[..., None].expand(*write.shape, self.value_dim))

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: ChannelGates) -> Tensor:
        return state * gates.log_keep.exp()[..., None] + gates.write * k[..., :, None] * v[..., None, :]


@pytest.fixture(autouse=True)
def channel_rule():
    with lab.temporary_components():
        yield register("update_rule", "channel_rule")(ChannelRule)


def test_flops_of_a_step_rule_with_channel_gates_equal_those_counted_by_torch():
    model = lab.build_model(**MODEL, update_rule="channel_rule", mixer="fw_only")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, LENGTH, dtype=torch.long))
    assert lab.sizes(model, LENGTH).total.forward == counter.get_total_flops()
    with torch.device("meta"):
        meta_model = SequenceModel(model.config)
    assert lab.sizes(meta_model, LENGTH) == lab.sizes(model, LENGTH)


def test_channel_gates_are_probed_by_their_mean_over_tokens_and_channels():
    model, tokens = lab.build_model(**MODEL, update_rule="channel_rule"), torch.randint(0, 11, (3, LENGTH))
    probes = lab.probe(model, tokens)
    x = model.blocks[0].memory_norm(model.embed(tokens))
    gates = model.memories[0].update_rule.gates(x)
    torch.testing.assert_close(probes["keep"], gates.log_keep.exp().mean((0, 2, 3))[None])
    torch.testing.assert_close(probes["write"], gates.write.mean((0, 2, 3, 4))[None])


def test_linear_rule_with_two_channel_dimensions_is_an_error_that_names_rule_and_shapes():
    @register("update_rule", "linear_channels")
    class LinearChannels(LinearRule):
        def gates(self, x: Tensor) -> Gates:
            keep = -x.unflatten(-1, (2, -1)).transpose(1, 2).square()
            return Gates(log_keep=keep[..., None].expand(-1, -1, -1, -1, 5))

    with raises_issue("update_rule", "invalid_gates") as error:
        lab.build_model(**MODEL, update_rule="linear_channels")(torch.zeros(1, 3, dtype=torch.long))
    assert "[1, 2, 3, 8, 5]" in error.value.issues[0].message
    (result,) = lab.check_component("update_rule", "linear_channels", quick=True).results
    assert (result.check, result.outcome) == ("gates are in range", "failed")


def test_linear_rule_with_the_wrong_number_of_channels_is_an_error_that_names_rule_and_channels():
    @register("update_rule", "wrong_channels")
    class WrongChannels(LinearRule):
        def gates(self, x: Tensor) -> Gates:
            return Gates(log_keep=-x.unflatten(-1, (2, -1)).transpose(1, 2).square()[..., :5])

    with raises_issue("update_rule", "invalid_gates") as error:
        lab.build_model(**MODEL, update_rule="wrong_channels")(torch.zeros(1, 3, dtype=torch.long))
    assert {"log_keep", "5", "8"} <= set(re.findall(r"\w+", error.value.issues[0].message))


def test_linear_rule_with_gates_of_another_class_fails_the_gate_check():
    @register("update_rule", "other_gates")
    class OtherGates(LinearRule):
        def gates(self, x: Tensor) -> ChannelGates:
            return ChannelGates(x[:, None, :, 0].expand(-1, 2, -1), x[:, None, :, 1].expand(-1, 2, -1))

    (result,) = lab.check_component("update_rule", "other_gates", quick=True).results
    assert (result.check, result.outcome) == ("gates are in range", "failed")
    assert "ChannelGates" in result.detail


class OwnScanRule(ChannelRule):
    def scan(self, q, k, v, gates, state, context):
        reads, state = self.reference(q, k, v, gates, state, context)
        return reads + 0 * (q @ q.mT @ q), state


def test_own_scan_of_a_step_rule_is_reported_with_its_own_flops():
    register("update_rule", "own_scan")(OwnScanRule)
    model = lab.build_model(**MODEL, update_rule="own_scan", mixer="fw_only")
    (backends,) = layer_backends(model, LENGTH, "cpu", torch.float32)
    assert backends.scan.name == "its own scan"
    model_sizes, steps = (
        lab.sizes(model, LENGTH),
        lab.sizes(lab.build_model(**MODEL, update_rule="channel_rule"), LENGTH),
    )
    assert (model_sizes.sequential_steps, steps.sequential_steps) == (0, LENGTH)
    own_products = 2 * 2 * 2 * LENGTH * LENGTH * 8  # two heads, two products of [T, T] with 8 channels
    assert model_sizes["fast_weights"].forward - steps["fast_weights"].forward == own_products


def test_step_rule_with_channel_gates_passes_the_kit_with_its_plan_training_probes_and_report():
    report = lab.check_component("update_rule", "channel_rule", quick=True)
    report.assert_passed()
    assert "can be used in a study" in [result.check for result in report.results]
