"""Each component equals its formula, written out a second time."""

import math

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.batch_layout import compute_token_positions
from hqlt_lab.model.block import Block
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel, build_model
from hqlt_lab.ops.gates import ScanContext
from hqlt_lab.registry import available, build, options

B, H, T, V, WIDTH = 2, 3, 5, 4, 12


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def build_component(kind, spec):
    return build(kind, spec, width=WIDTH, heads=H).double()


@pytest.fixture
def outputs():
    return random(B, T, WIDTH), random(B, H, T, V), random(B, H, T, V)


def test_scalar_uses_the_first_gates_for_the_fast_weights_and_the_last_for_softmax(outputs):
    x, fw, kv = outputs
    mixer = build_component("mixer", "scalar")
    gates = torch.sigmoid(x @ mixer.to_weights.weight.T)
    for h in range(H):
        expected = gates[:, :, h, None] * fw[:, h] + gates[:, :, H + h, None] * kv[:, h]
        torch.testing.assert_close(mixer(x, fw, kv)[:, h], expected)


def test_separate_splits_its_gates_inside_each_head(outputs):
    x, fw, kv = outputs
    mixer = build_component("mixer", "independent_vector")
    gates = torch.sigmoid(x @ mixer.to_gates.weight.T)
    for h in range(H):
        head_gates = gates[:, :, h * 2 * V : (h + 1) * 2 * V]
        torch.testing.assert_close(
            mixer(x, fw, kv)[:, h], head_gates[..., :V] * fw[:, h] + head_gates[..., V:] * kv[:, h]
        )


def test_first_static_weight_is_that_of_the_fast_weights(outputs):
    x, fw, kv = outputs
    mixer = build_component("mixer", "static")
    with torch.no_grad():
        mixer.both.copy_(torch.tensor([2.0, -3.0]))
    torch.testing.assert_close(mixer(x, fw, kv), 2 * fw - 3 * kv)


def test_softmax_weights_of_a_head_sum_to_one_and_the_first_logits_are_those_of_the_fast_weights(outputs):
    x, fw, kv = outputs
    mixer = build_component("mixer", "softmax")
    logits = x @ mixer.to_logits.weight.T
    for h in range(H):
        a = (logits[:, :, h].exp() / (logits[:, :, h].exp() + logits[:, :, H + h].exp()))[..., None]
        torch.testing.assert_close(mixer(x, fw, kv)[:, h], a * fw[:, h] + (1 - a) * kv[:, h])


def test_normalized_divides_by_the_rms_of_all_channels_and_scales_each(outputs):
    x, fw, kv = outputs
    mixer = build_component("mixer", "normalized")
    with torch.no_grad():
        for norm in mixer.norms.values():
            norm.weight.copy_(random(H * V))
    mixed = mixer(x, fw, kv)
    for t in range(T):
        expected = 0
        for name, output in (("fw", fw[1, :, t]), ("kv", kv[1, :, t])):
            rms = (output.square().sum() / (H * V) + 1e-6).sqrt()
            expected = expected + mixer.norms[name].weight.view(H, V) * output / rms
        torch.testing.assert_close(mixed[1, :, t], expected)


def test_sinusoidal_positions_alternate_sines_and_cosines():
    wave = build_component("positions", "sinusoidal").embed(torch.zeros(1, 3, 6).double(), torch.tensor([[0, 1, 7]]))
    for row, position in enumerate((0, 1, 7)):
        for i in range(3):
            angle = position * 10000 ** (-2 * i / 6)
            torch.testing.assert_close(wave[0, row, 2 * i].item(), math.sin(angle))
            torch.testing.assert_close(wave[0, row, 2 * i + 1].item(), math.cos(angle))


def test_sinusoidal_positions_reach_the_fast_weights():
    x = torch.randn(1, 6, 8)
    with_positions, without_positions = (
        build_model(width=8, heads=2, mixer="fw_only", positions=name)(x)[0] for name in ("sinusoidal", "none")
    )
    assert not torch.allclose(with_positions, without_positions)


def test_rope_is_accurate_at_large_positions():
    rope = build("positions", "rope", width=128, heads=1)
    q, k = torch.randn(2, 1, 1, 1, 128)

    def score(start, dtype):
        rotated = (rope.rotate(u.to(dtype), torch.tensor([[position]])) for u, position in ((q, start + 7), (k, start)))
        return math.prod(rotated).sum().item()

    assert score(1_000_000, torch.float32) == pytest.approx(score(0, torch.float64), abs=1e-4)


def test_gates_of_gated_delta_equal_their_formula():
    rule, x = build_component("update_rule", {"name": "gated_delta", "max_beta": 2}), random(B, T, WIDTH)
    gates = rule.gates(x)
    decay = torch.exp(rule.log_rate) * F.softplus(x @ rule.to_fade.weight.T + rule.fade_bias)
    torch.testing.assert_close(gates.log_keep, -decay.mT)
    torch.testing.assert_close(gates.erase, 2 * torch.sigmoid(x @ rule.to_beta.weight.T).mT)
    assert torch.equal(gates.erase, gates.write)


PER_CHANNEL = "gdn2"  # its strengths have channels: tests/components/test_update_rules.py
RULES_WITH_MAX_BETA = [
    name for name in available("update_rule") if "max_beta" in options("update_rule", name) and name != PER_CHANNEL
]


@pytest.mark.parametrize("max_beta", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("name", RULES_WITH_MAX_BETA)
def test_beta_is_max_beta_times_a_sigmoid(name, max_beta):
    x, rule = random(B, T, WIDTH), build_component("update_rule", {"name": name, "max_beta": max_beta})
    expected = max_beta * torch.sigmoid(x @ rule.to_beta.weight.T)  # [B, T, heads * writes]
    beta = rule.gates(x).write  # [B, H, T * writes]
    expected = expected.unflatten(-1, (H, -1)).permute(0, 2, 1, 3).flatten(2)
    torch.testing.assert_close(beta, expected)


def test_tanh_delta_equals_its_formula():
    rule, x = build_component("update_rule", "tanh_delta"), random(B, T, WIDTH)
    q, k, v = random(3, B, H, T, V)
    beta = torch.sigmoid(x @ rule.to_beta.weight.T)  # [B, T, H]
    reads, state = rule.scan(q, k, v, rule.gates(x), None, ScanContext())
    for b in range(B):
        for h in range(H):
            memory = torch.zeros(V, V, dtype=torch.float64)  # rows are values, columns are keys
            for t in range(T):
                error = v[b, h, t] - memory @ k[b, h, t]
                memory = torch.tanh(memory + beta[b, t, h] * torch.outer(error, k[b, h, t]))
                torch.testing.assert_close(reads[b, h, t], memory @ q[b, h, t])
            torch.testing.assert_close(state[b, h], memory.T)


def test_gated_delta_is_initialized_in_the_published_ranges():
    rule = build("update_rule", "gated_delta", width=4, heads=4000)
    rate, decay_rate = rule.log_rate.exp(), F.softplus(rule.fade_bias)
    assert 0 < rate.min() < 0.1 and 15.9 < rate.max() <= 16 and rate.mean().item() == pytest.approx(8, abs=0.4)
    assert 1e-3 <= decay_rate.min() < 1.02e-3 and 0.098 < decay_rate.max() <= 0.1001
    assert decay_rate.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.1)


def test_tanh_delta_saturates():
    rule = build_component("update_rule", "tanh_delta")
    state, k, v, beta = random(1, 1, 2, 2), random(1, 1, 2), 50 * random(1, 1, 2), torch.ones(1, 1).double()
    W = state[0, 0].T
    expected = torch.tanh(W + torch.outer(v[0, 0] - W @ k[0, 0], k[0, 0]))
    torch.testing.assert_close(rule.step(state, k, v, type(rule.gates(random(1, 1, WIDTH)))(beta))[0, 0].T, expected)


def make_memory(**settings):
    model = build_model(width=8, heads=2, layers=1, init_std=0.5, positions="none", **settings).double()
    return model.memories[0]


def test_output_gate_is_a_silu():
    gated, plain = make_memory(output_gate=True), make_memory()
    x = random(1, T, 8)
    plain.to_out, gated_out = torch.nn.Identity(), gated.to_out
    torch.testing.assert_close(gated(x)[0], gated_out(plain(x)[0] * F.silu(x @ gated.to_gate.weight.T)))


def test_convolutions_come_before_the_value_activation_and_end_with_the_current_token():
    memory = make_memory(short_conv=3)
    x = random(1, T, 8)
    q, k, v, _ = memory.project(x, compute_token_positions(x, None), None)
    for actual, linear, convolve, act in zip(
        (q, k, v), (memory.to_q, memory.to_k, memory.to_v), memory.convolutions, (None, None, F.silu), strict=True
    ):
        u = F.pad(linear(x), (0, 0, 2, 0))
        taps = convolve.weight[:, 0]  # [C, 3]
        expected = sum(u[:, i : i + T] * taps[:, i] for i in range(3))
        expected = expected if act is None else act(expected)
        torch.testing.assert_close(actual.transpose(1, 2).flatten(2), expected)


def test_softmax_uses_the_first_of_several_pairs():
    rule = {"name": "delta_product", "steps": 2}
    memory = make_memory(update_rule=rule, timing={"name": "synchronous", "window": 1}, mixer="sum")
    memory.update_rule.max_beta = 0.0  # nothing is written, so the output is that of softmax
    memory.to_out = memory.norm = torch.nn.Identity()
    x = random(1, T, 8)
    first = F.silu(memory.to_v(x)).unflatten(-1, (2, 2, 4))[:, :, :, 0].flatten(2)
    torch.testing.assert_close(memory(x)[0], first)


@pytest.mark.parametrize("mlp", ["swiglu", "gelu"])
def test_block_adds_memory_and_mlp_to_the_residual_stream(mlp):
    config = ModelConfig(width=8, heads=2, layers=1, init_std=0.5, mlp=mlp, mlp_width=6)
    block = Block(config)
    initialize_parameters(block, config, seed=0)
    block.double()
    x = random(1, T, 8)

    def rms(u):
        return u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    middle = x + block.memory(rms(x))[0]
    inner, net = rms(middle), block.mlp
    hidden = F.silu(net.gate(inner)) * net.up(inner) if mlp == "swiglu" else F.gelu(net.up(inner))
    torch.testing.assert_close(block(x)[0], middle + hidden @ net.down.weight.T)


def test_state_does_not_keep_the_sequence_in_memory():
    model = build_model(width=8, heads=2, layers=1, timing={"name": "synchronous", "window": 4}, short_conv=3)
    _, (state,) = model(torch.randn(1, 2000, 8))
    tensors = (state.kv_cache.k, state.kv_cache.v, *state.conv)
    assert all(tensor.untyped_storage().nbytes() < 1000 for tensor in tensors)


@pytest.mark.parametrize("rule", ["delta", "gated_delta", "tanh_delta", "linear_attention"])
def test_memory_is_float32_under_autocast(rule):
    memory = make_memory(update_rule=rule, mixer="fw_only").float()
    x = torch.randn(1, 40, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        (q, k, v, _), gates = memory.project(x, compute_token_positions(x, None), None), memory.update_rule.gates(x)
        k = memory.feature_map(k.float())
        _, under_autocast = memory.update_rule.scan(q, k, v, gates, None, ScanContext())
    _, without_autocast = memory.update_rule.scan(q, k, v, gates, None, ScanContext())
    assert torch.equal(under_autocast, without_autocast)


def test_model_runs_on_the_meta_device():
    config = ModelConfig(vocabulary=5, width=8, heads=2, update_rule="gated_delta")
    with torch.device("meta"):
        logits, _ = SequenceModel(config)(torch.zeros(1, 9, dtype=torch.long))
    assert logits.shape == (1, 9, 5)


def test_empty_linear_attention_has_zero_gradient():
    """A gradient of 1e10 would be infinite in 16 bits, and 0 times infinity is NaN."""
    reads, q = torch.zeros(1, 2, 3, 5, requires_grad=True), torch.ones(1, 2, 3, 4)
    outputs = build("update_rule", "linear_attention", width=8, heads=2).normalize_read(reads, q, q)
    outputs.sum().backward()
    assert outputs.abs().sum() == 0 == reads.grad.abs().sum()
