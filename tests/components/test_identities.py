"""Mathematical identities between rules and timings, such as those that coincide in a limit."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.components._heads import split_heads
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.projections import ProjectedTokens
from hqlt_lab.ops.gates import Gates, ScanContext
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.registry import available, build

T = 21
DELTA2 = {"name": "delta", "max_beta": 2}


def make_memory(seed=0, **settings):
    defaults = {"width": 8, "heads": 2, "init_std": 0.6, "positions": "none", "head_norm": False, "update_rule": DELTA2}
    config = ModelConfig(**(defaults | settings))
    layer = HybridMemory(config)
    initialize_parameters(layer, config, seed)
    return layer.double()


def memory_output(x, **settings):
    return make_memory(**settings)(x)[0]


@pytest.fixture
def x():
    return torch.randn(2, T, 8, dtype=torch.float64)


@pytest.fixture
def pairs():
    q, k, v = (torch.randn(2, 2, T, 4, dtype=torch.float64) for _ in range(3))
    return q, F.normalize(k, dim=-1), v


@pytest.mark.parametrize("timing", ["delayed_stream", "delayed_chunk"])
@pytest.mark.parametrize("window", [T, T + 5])
def test_delayed_fast_weights_are_empty_if_the_window_covers_the_sequence(x, timing, window):
    timing = {"name": timing, "window": window}
    assert memory_output(x, timing=timing, mixer="fw_only").abs().max() == 0
    full = memory_output(x, timing={"name": "synchronous", "window": None}, mixer="kv_only")
    torch.testing.assert_close(memory_output(x, timing=timing, mixer="kv_only"), full)


def test_synchronous_with_a_long_window_is_full_attention_plus_deltanet(x):
    hybrid = memory_output(x, timing={"name": "synchronous", "window": T}, mixer="sum")
    attention = memory_output(x, timing={"name": "synchronous", "window": None}, mixer="kv_only")
    torch.testing.assert_close(hybrid, attention + memory_output(x, mixer="fw_only"))


@pytest.mark.parametrize("timing", available("timing"))
def test_window_of_one_shows_only_the_token_itself(x, timing):
    layer = make_memory(timing={"name": timing, "window": 1}, mixer="kv_only")
    torch.testing.assert_close(layer(x)[0], layer.to_out(F.silu(layer.to_v(x))))


def test_delayed_stream_is_deltanet_on_shifted_pairs(x, pairs):
    q, k, v = pairs
    layer = make_memory(timing={"name": "delayed_stream", "window": 5}, mixer="fw_only")
    gates = layer.update_rule.gates(x)
    shifted = [F.pad(u, (0, 0, 5, 0))[:, :, :T] for u in (k, v)]
    expected, _ = chunked_scan(q, *shifted, gates)
    # run the layer with its projections replaced by these pairs
    layer.project = lambda *_: ProjectedTokens(q, k, v, None)
    layer.feature_map, layer.to_out = torch.nn.Identity(), torch.nn.Identity()
    torch.testing.assert_close(layer(x)[0], (expected / 2).transpose(1, 2).flatten(2))


def test_delayed_chunk_of_one_is_delayed_stream_of_one_with_own_gates(x):
    stream = {"name": "delayed_stream", "window": 1, "gates": "own"}
    torch.testing.assert_close(
        memory_output(x, timing={"name": "delayed_chunk", "window": 1}), memory_output(x, timing=stream)
    )


def test_delayed_chunk_reads_the_deltanet_state_from_the_start_of_each_chunk(x):
    chunked_layer, plain = (
        make_memory(timing={"name": n, "window": 5}, mixer="fw_only") for n in ("delayed_chunk", "synchronous")
    )
    y, _ = chunked_layer(x)
    for n in (1, 2, 3):
        _, state = plain(x[:, : 5 * n])
        q = split_heads(plain.to_q(x), 2)[:, :, 5 * n]
        reads = (plain.feature_map(q)[:, :, None] @ state.fw / 2).squeeze(2)
        torch.testing.assert_close(y[:, 5 * n], plain.to_out(reads.flatten(1)))


def test_vector_mixer_with_weights_of_one_half_is_half_the_sum(x):
    halves = make_memory(mixer="vector")
    torch.nn.init.zeros_(halves.mixer.to_choice.weight)
    torch.testing.assert_close(halves(x)[0], memory_output(x, mixer="sum") / 2)
    vector_layer, sum_layer = (make_memory(mixer=mixer, head_norm=True, norm_eps=1e-12) for mixer in ("vector", "sum"))
    torch.nn.init.zeros_(vector_layer.mixer.to_choice.weight)
    torch.testing.assert_close(vector_layer(x)[0], sum_layer(x)[0])


def test_softmax_mixer_with_equal_logits_is_half_the_sum(x):
    layer = make_memory(mixer="softmax")
    torch.nn.init.zeros_(layer.mixer.to_logits.weight)
    torch.testing.assert_close(layer(x)[0], memory_output(x, mixer="sum") / 2)


def test_normalized_with_outputs_of_equal_norm_is_a_scaled_sum():
    x, (fw, kv) = torch.randn(2, T, 8).double(), torch.randn(2, 2, 2, T, 4).double()
    size = 1 + torch.rand(2, 1, T, 1).double()  # of each token
    fw, kv = (size * u / u.square().mean((1, 3), keepdim=True).sqrt() for u in (fw, kv))
    mixer = build("mixer", "normalized", width=8, heads=2).double()
    torch.testing.assert_close(mixer(x, fw, kv), (fw + kv) / size, atol=1e-5, rtol=1e-5)  # up to eps


def test_rope_changes_only_the_softmax_memory(x):
    assert torch.equal(
        memory_output(x, mixer="fw_only", positions="rope"), memory_output(x, mixer="fw_only", positions="none")
    )
    assert not torch.allclose(
        memory_output(x, mixer="kv_only", positions="rope"), memory_output(x, mixer="kv_only", positions="none")
    )


def test_rope_scores_depend_only_on_distances():
    rope = build("positions", "rope", width=16, heads=2)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(t, s):
        return (rope.rotate(q, torch.tensor([[t]])) * rope.rotate(k, torch.tensor([[s]]))).sum()

    torch.testing.assert_close(score(7, 3), score(1007, 1003))
    torch.testing.assert_close(score(7, 3), score(2, -2))
    assert not torch.allclose(score(7, 3), score(7, 4))


def test_beta_of_one_replaces_two_reflects_and_zero_does_nothing(pairs):
    q, k, v = (u[:, :, :1] for u in pairs)
    state = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    for beta, value, expected in ((1.0, v, v), (2.0, 0 * v, -(k @ state)), (0.0, v, k @ state)):
        strength = torch.full((2, 2, 1), beta, dtype=torch.float64)
        _, after = chunked_scan(q, k, value, Gates(erase=strength, write=strength), state)
        torch.testing.assert_close(k @ after, expected)


def test_delta_with_orthonormal_keys_recalls_exactly(pairs):
    k, v = torch.eye(4).double().expand(2, 2, 4, 4), pairs[2][:, :, :4]
    one = torch.ones(2, 2, 4, dtype=torch.float64)
    _, state = chunked_scan(k, k, v, Gates(erase=one, write=one))
    torch.testing.assert_close(k @ state, v)


def test_gated_delta_without_decay_is_delta(x):
    gated = make_memory(update_rule={"name": "gated_delta", "max_beta": 2})
    with torch.no_grad():
        gated.update_rule.log_rate.fill_(-torch.inf)
    torch.testing.assert_close(gated(x)[0], memory_output(x))


def test_delta_product_with_one_step_is_delta(x):
    assert torch.equal(
        memory_output(x, update_rule={"name": "delta_product", "steps": 1, "max_beta": 2}), memory_output(x)
    )


def test_retention_without_decay_is_linear_attention(x):
    layer = make_memory(update_rule="retention", feature_map="elu_plus_one")
    gates = layer.update_rule.gates
    layer.update_rule.gates = lambda x: gates(x)._replace(log_keep=torch.zeros_like(gates(x).log_keep))
    torch.testing.assert_close(
        layer(x)[0], memory_output(x, update_rule={"name": "linear_attention", "normalizer": "none"})
    )


def test_retention_decays_at_the_rate_of_its_head():
    log_keep = build("update_rule", "retention", heads=4).gates(torch.zeros(1, 3, 8)).log_keep
    torch.testing.assert_close(log_keep.exp()[0, :, 0], 1 - 2.0 ** -torch.arange(5.0, 9.0))


def test_two_reflections_per_token_rotate_the_memory():
    """A product of two reflections is a rotation: here by 120 degrees, so that three tokens restore the state."""
    angle = torch.tensor(torch.pi / 3, dtype=torch.float64)
    keys = torch.stack([torch.tensor([1.0, 0.0]).double(), torch.stack([angle.cos(), angle.sin()])])
    k = keys.repeat(3, 1)[None, None]  # three tokens of two writes each
    two = torch.full((1, 1, 6), 2.0, dtype=torch.float64)
    state = torch.randn(1, 1, 2, 2, dtype=torch.float64)
    q = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    _, after = chunked_scan(q, k, torch.zeros_like(k), Gates(erase=two, write=two), state)
    torch.testing.assert_close(after, state)


def test_feature_maps_equal_their_formulas():
    u = torch.randn(50, 6, dtype=torch.float64)
    torch.testing.assert_close(build("feature_map", "elu_plus_one")(u), F.elu(u) + 1)
    expected = F.silu(u) / (F.silu(u).square().sum(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(build("feature_map", "silu_l2")(u), expected)
    assert build("feature_map", "silu_l2")(torch.zeros(6)).abs().max() == 0


def test_products_of_taylor_features_are_the_polynomial_of_the_exponential():
    feature_map = build("feature_map", {"name": "taylor", "dim": 3}, width=12, heads=2).double()
    q, k = torch.randn(2, 50, 6, dtype=torch.float64)
    z = (feature_map.project(q) * feature_map.project(k)).sum(-1) / 3**0.5
    assert feature_map.features(6) == feature_map(q).shape[-1] == 1 + 3 + 9
    torch.testing.assert_close((feature_map(q) * feature_map(k)).sum(-1), 1 + z + z**2 / 2)


def test_normalized_linear_attention_with_small_taylor_features_is_nearly_softmax():
    torch.manual_seed(0)
    q, k, v = 0.3 * torch.randn(3, 1, 1, 9, 4, dtype=torch.float64)
    feature_map = build("feature_map", {"name": "taylor", "dim": None}, width=4, heads=1)
    rule = build("update_rule", "linear_attention")
    read, _ = rule.scan(feature_map(q), feature_map(k), v, rule.gates(v), None, ScanContext())
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(read, expected, atol=1e-4, rtol=0)


def test_taylor_projection_starts_orthogonal_in_a_model():
    memory = make_memory(update_rule="retention", feature_map={"name": "taylor", "dim": 2})
    weight = memory.feature_map.project.weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(2, dtype=weight.dtype), atol=1e-6, rtol=0)


def test_heads_that_are_short_enough_are_not_projected_by_taylor():
    feature_map = build("feature_map", {"name": "taylor", "dim": 6}, width=12, heads=2)
    assert feature_map.project is None and feature_map.features(6) == 1 + 6 + 36


def test_dpfp_features_equal_the_loop_of_the_paper():
    u = torch.randn(4, 5, dtype=torch.float64)
    r = torch.cat([u, -u], -1).relu()
    expected = torch.stack([r[:, j] * r[:, (j - shift) % 10] for shift in (1, 2) for j in range(10)], -1)
    assert build("feature_map", {"name": "dpfp", "nu": 2}).features(5) == 20
    torch.testing.assert_close(build("feature_map", {"name": "dpfp", "nu": 2, "norm": "none"})(u), expected)
    summed = build("feature_map", {"name": "dpfp", "nu": 2})(u)
    torch.testing.assert_close(summed, expected / (expected.sum(-1, keepdim=True) + 1e-6))
    unit = build("feature_map", {"name": "dpfp", "nu": 2, "norm": "l2"})(u)
    torch.testing.assert_close(unit.norm(dim=-1), torch.ones(4, dtype=torch.float64))


def test_delta_recalls_four_pairs_with_dpfp_keys_of_two_channels():
    keys = torch.tensor([[1, 1], [-1, 1], [-1, -1], [1, -1]], dtype=torch.float64)
    k = build("feature_map", {"name": "dpfp", "norm": "l2"})(keys)[None, None]
    v, beta = torch.randn(1, 1, 4, 2, dtype=torch.float64), torch.ones(1, 1, 4, dtype=torch.float64)
    _, state = chunked_scan(k, k, v, Gates(erase=beta, write=beta))
    torch.testing.assert_close(k @ state, v)
