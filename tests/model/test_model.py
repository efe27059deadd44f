"""The whole model: settings, mixed layers, initialization, streaming, state."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.component_under_test import flatten_tensors, run_in_chunks
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import ModelConfig, model_config
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel, build_model
from tests.issues import raises_issue

SMALL = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mlp_width": 16, "init_std": 0.3}
TOKENS = torch.randint(0, 11, (3, 23), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    "settings",
    [
        {
            "mixer": ["vector", "kv_only"],
            "timing": [{"name": "synchronous", "window": 4}, {"name": "synchronous", "window": None}],
        },
        {"timing": [{"name": "delayed_chunk", "window": 3}, {"name": "delayed_stream", "window": 5}], "short_conv": 4},
        {"update_rule": [{"name": "delta_product", "steps": 3}, "linear_attention"], "output_gate": True},
        {"timing": {"name": "delayed_chunk", "window": 3, "hold": 7}, "update_rule": "gated_delta", "norm": "layer"},
        {"positions": "sinusoidal", "mlp": "gelu", "bias": True, "tie_embeddings": True},
        {"update_rule": {"name": "delta_product", "steps": 2}, "timing": {"name": "delayed_chunk", "window": 4}},
        {"mlp": ["none", "gelu"], "positions": {"name": "learned", "length": 23}, "feature_map": "dpfp"},
        {"layer_kind": ["gated_conv", "memory"], "mlp": "identity", "norm": "layer", "bias": True},
        {"update_rule": ["linear_attention", "delta"], "feature_map": [{"name": "taylor", "dim": 3}, None]},
    ],
)
def test_mixed_layers_give_the_same_result_in_chunks_and_in_one_call(settings):
    model = build_model(**SMALL | settings).double()
    expected, state = model(TOKENS)
    for split in ([11, 12], [1] * 23, [2, 1, 9, 4, 7]):
        logits, last = run_in_chunks(model, TOKENS, split)
        torch.testing.assert_close(logits, expected)
        torch.testing.assert_close(flatten_tensors(last), flatten_tensors(state))


def test_gradients_flow_across_calls():
    model = build_model(**SMALL, timing={"name": "delayed_chunk", "window": 5}).double().train()
    expected = torch.autograd.grad(model(TOKENS)[0].square().sum(), list(model.parameters()))
    actual = torch.autograd.grad(run_in_chunks(model, TOKENS, [4, 19])[0].square().sum(), list(model.parameters()))
    torch.testing.assert_close(actual, expected)


def test_rows_with_different_numbers_of_tokens_can_be_continued_in_one_batch():
    model = build_model(**SMALL, timing={"name": "delayed_chunk", "window": 5}, short_conv=3).double()
    _, short_state = model(TOKENS[:1, :6])
    _, long_state = model(TOKENS[1:2, :13])
    both_states = tuple(concat_states(first, second) for first, second in zip(short_state, long_state, strict=True))
    batched, _ = model(TOKENS[:2, 13:], both_states)
    torch.testing.assert_close(batched[:1], model(TOKENS[:1, 13:], short_state)[0])
    torch.testing.assert_close(batched[1:], model(TOKENS[1:2, 13:], long_state)[0])


def concat_states(first, second):
    """Concatenate two states: all their fields are tensors whose first dimension is the batch."""
    if isinstance(first, torch.Tensor):
        return torch.cat([first, second])
    if isinstance(first, tuple):
        fields = [concat_states(a, b) for a, b in zip(first, second, strict=True)]
        return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
    return first


def test_memory_does_not_grow_for_parity_in_bfloat16():
    """With rounded unit keys the memory would grow exponentially over 2,000 reflections."""
    model = build_model(width=64, heads=1, layers=1, update_rule={"name": "delta", "max_beta": 2}, mixer="fw_only")
    memory = model.memories[0]
    x = torch.randn(1, 1, 64).expand(1, 2000, 64)
    with torch.no_grad():
        memory.update_rule.to_beta.weight.copy_(x[0, :1] * 20 / x[0, 0].square().sum())  # beta is always 2
        states = [memory.to(dtype)(x.to(dtype))[1].fw.abs().max() for dtype in (torch.float32, torch.bfloat16)]
    assert states[1] < 3 * states[0]


def test_sequence_without_tokens_is_rejected():
    with pytest.raises(ValueError, match="The input has no tokens"):
        build_model(**SMALL)(torch.zeros(1, 0, dtype=torch.long))


def test_state_has_the_size_of_the_paper_and_does_not_grow():
    model = build_model(width=64, heads=2, layers=1, timing={"name": "delayed_stream", "window": 16})
    for length in (5, 200):
        _, (state,) = model(torch.randn(1, length, 64))
        numbers = sum(field.numel() for field in (state.kv_cache.k, state.kv_cache.v, state.fw))
        assert numbers == 2 * (16 * (32 + 32) + 32 * 32)
        assert state.document_length.tolist() == [length]


def test_memory_that_the_mixer_does_not_read_is_not_built():
    fw = build_model(**SMALL, mixer="fw_only").memories[0]
    kv = build_model(**SMALL, mixer="kv_only").memories[0]
    assert fw.positions is None and kv.update_rule is None and kv.feature_map is None
    assert fw(torch.randn(1, 5, 16))[1].kv_cache is None
    assert kv(torch.randn(1, 5, 16))[1].fw is None


def test_models_of_one_seed_share_the_values_of_common_parameters():
    first, second = build_model(seed=4, **SMALL, mixer="sum"), build_model(seed=4, **SMALL, mixer="vector")
    shared = dict(first.named_parameters())
    assert all(torch.equal(value, shared[name]) for name, value in second.named_parameters() if name in shared)
    assert not torch.equal(build_model(seed=5, **SMALL).head.weight, second.head.weight)


def test_every_random_parameter_depends_on_the_seed():
    settings = {"vocabulary": 5, "width": 16, "heads": 2, "layers": 2, "update_rule": "gated_delta", "short_conv": 3}
    first, second = (dict(build_model(**settings, seed=seed).named_parameters()) for seed in (0, 1))
    random_names = [name for name, parameter in first.items() if parameter.unique().numel() > 2]
    assert len(random_names) > 10
    assert not [name for name in random_names if torch.equal(first[name], second[name])]


def test_initialization_does_not_change_the_global_random_state():
    config = model_config(SMALL | {"update_rule": "gated_delta"})
    model = SequenceModel(config)
    before = torch.get_rng_state()
    initialize_parameters(model, config, seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_initial_weights_have_the_published_distributions():
    model = build_model(vocabulary=500, width=256, heads=4, layers=3)
    assert model.embed.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.memories[1].to_q.weight.std().item() == pytest.approx(0.02, rel=0.05)
    bound = 1 / (256 * 2 * 3) ** 0.5
    assert bound * 0.99 < model.memories[1].to_out.weight.abs().max().item() <= bound
    normal = build_model(vocabulary=500, width=256, heads=4, layers=3, residual_init="normal")
    assert normal.memories[1].to_out.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert all((norm.weight == 1).all() for norm in model.modules() if isinstance(norm, torch.nn.RMSNorm))


def test_component_with_own_parameters_needs_reset_parameters():
    with lab.temporary_components():

        @lab.register("mixer", "unset")
        class Unset(type(lab.build("mixer", "sum"))):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(1))

        with raises_issue("blocks.1.memory.mixer", "no_initialization"):
            build_model(**SMALL, mixer="unset")


@pytest.mark.parametrize(
    ("settings", "path", "code"),
    [
        ({"widht": 8}, "widht", "unknown_setting"),
        ({"width": "8"}, "width", "setting_of_wrong_type"),
        ({"head_norm": 1}, "head_norm", "setting_of_wrong_type"),
        ({"norm": "batch"}, "norm", "setting_of_wrong_type"),
        ({"width": 128, "heads": 3}, "heads", "width_not_divisible"),
        ({"layers": 0}, "layers", "below_minimum"),
        ({"mixer": "vectr"}, "mixer", "unknown_component"),
        ({"mixer": ["sum", "vectr"]}, "mixer[1]", "unknown_component"),
        ({"mixer": ["sum"] * 3}, "mixer", "layers_not_divisible"),
        ({"update_rule": {"name": "delta", "beta": 2}}, "update_rule.beta", "unknown_option"),
        ({"tie_embeddings": True}, "tie_embeddings", "no_embeddings"),
        ({"positions": None}, "positions", "unknown_component"),
        ({"mlp": "relu"}, "mlp", "setting_of_wrong_type"),
        ({"mlp": ["none", "relu"]}, "mlp[1]", "setting_of_wrong_type"),
        ({"mlp": None}, "mlp", "setting_of_wrong_type"),
        ({"mlp": ["none"] * 3}, "mlp", "layers_not_divisible"),
        ({"layer_kind": "conv"}, "layer_kind", "setting_of_wrong_type"),
        ({"layer_kind": "gated_conv"}, "layer_kind", "model_without_memory"),
        ({"layer_kind": {"default": "gated_conv", "at": {}}}, "layer_kind", "model_without_memory"),
    ],
)
def test_invalid_setting_is_reported(settings, path, code):
    with raises_issue(path, code):
        model_config({"layers": 2} | settings)


def test_all_invalid_components_are_reported_together():
    with pytest.raises(ConfigError) as error:
        ModelConfig(mixer="vectr", timing={"name": "synchronous", "windw": 3}, update_rule="dleta")
    assert sorted(issue.path for issue in error.value.issues) == ["mixer", "timing.windw", "update_rule"]


@pytest.mark.parametrize(
    ("settings", "path", "code"),
    [
        ({"update_rule": "delta", "feature_map": "elu_plus_one"}, "feature_map", "keys_not_normalized"),
        ({"update_rule": "linear_attention", "feature_map": "silu_l2"}, "feature_map", "features_not_positive"),
        ({"positions": ["rope", "sinusoidal"]}, "positions", "positions_differ_by_layer"),
        ({"positions": ["learned", {"name": "learned", "length": 9}]}, "positions", "positions_differ_by_layer"),
        ({"positions": {"name": "learned", "length": 0}}, "positions.length", "below_minimum"),
        ({"update_rule": "gla", "feature_map": "taylor"}, "feature_map", "features_differ_from_key_channels"),
        ({"update_rule": "delta", "feature_map": "taylor"}, "feature_map", "keys_not_normalized"),
        ({"feature_map": {"name": "dpfp", "norm": "none"}}, "feature_map", "keys_not_normalized"),
        ({"feature_map": {"name": "dpfp", "nu": 0}}, "feature_map.nu", "below_minimum"),
        ({"update_rule": "retention", "feature_map": {"name": "taylor", "dim": 0}}, "feature_map.dim", "below_minimum"),
        ({"width": 6, "heads": 2, "positions": "rope"}, "positions", "odd_head_width"),
        ({"timing": {"name": "synchronous", "window": 0}}, "timing.window", "below_minimum"),
        ({"update_rule": {"name": "delta_product", "steps": 0}}, "update_rule.steps", "below_minimum"),
    ],
)
def test_incompatible_components_are_rejected(settings, path, code):
    with raises_issue(path, code):
        build_model(**SMALL | settings)


def test_linear_attention_without_normalizer_accepts_any_feature_map():
    rule = {"name": "linear_attention", "normalizer": "none"}
    assert build_model(**SMALL, update_rule=rule, feature_map="silu_l2").memories[0].feature_map.has_unit_norm


def test_layer_without_mlp_is_its_memory_alone():
    model = build_model(**SMALL, mlp=["none", "swiglu"]).double()
    first, second = model.blocks
    assert first.mlp is None and first.mlp_norm is None and second.mlp is not None
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(first(x)[0], x + first.memory(first.memory_norm(x))[0])


def test_mlps_of_a_list_have_the_default_width_of_their_kind():
    model = build_model(**{**SMALL, "mlp_width": None}, mlp=["gelu", "swiglu"])
    assert [block.mlp.up.out_features for block in model.blocks] == [4 * 16, 256]


def test_equal_parameters_of_models_with_and_without_mlps_have_equal_values():
    full, partial = (dict(build_model(**SMALL, mlp=mlp).named_parameters()) for mlp in ("swiglu", ["none", "swiglu"]))
    assert partial.keys() < full.keys()
    assert all(torch.equal(parameter, full[name]) for name, parameter in partial.items())


def test_state_consists_of_tensors_only():
    _, state = build_model(**SMALL, update_rule="gated_delta", timing="delayed_chunk", short_conv=4)(TOKENS)
    assert all(isinstance(leaf, torch.Tensor) and len(leaf) == 3 for leaf in flatten_tensors(state))


def test_dropout_applies_in_training_to_inputs_and_outputs_of_sub_layers():
    x = torch.randn(2, 7, 16)
    plain, dropping = (lab.build_model(width=16, heads=2, mlp_width=16, dropout=rate) for rate in (0.0, 0.5))
    assert torch.equal(plain(x)[0], dropping.eval()(x)[0])
    assert not torch.equal(dropping.train()(x)[0], dropping(x)[0])
    zero_shares = []
    for drop in (dropping.drop, *(block.drop for block in dropping.blocks)):
        drop.register_forward_hook(lambda module, inputs, output: zero_shares.append((output == 0).float().mean()))
    dropping(x)
    assert len(zero_shares) == 1 + 2 * 2 and all(0.3 < share < 0.7 for share in zero_shares)


def test_a_gated_convolution_multiplies_a_convolution_with_a_linear_map():
    """Each token sees the last three inputs of its row, up to the end of the row."""
    model = build_model(**SMALL, layer_kind=["gated_conv", "memory"]).double()
    layer, x = model.blocks[0].memory, torch.randn(2, 5, 16, dtype=torch.float64)
    torch.nn.init.normal_(layer.to_gate.bias)
    torch.nn.init.normal_(layer.convolutions.bias)
    taps = layer.convolutions.weight[:, 0]  # [width, 3]
    for t in range(5):
        convolved = layer.convolutions.bias.expand(2, -1)
        for offset in range(min(t + 1, 3)):
            convolved = convolved + taps[:, 2 - offset] * x[:, t - offset]
        expected = convolved * (x[:, t] @ layer.to_gate.weight.mT + layer.to_gate.bias) + x[:, t]
        torch.testing.assert_close(layer(x)[0][:, t], expected)


def test_an_identity_mlp_adds_the_normalized_stream():
    model = build_model(**SMALL, mlp="identity", norm="layer").double()
    block, x = model.blocks[0], torch.randn(2, 5, 16, dtype=torch.float64)
    memory_output = x + block.memory(block.memory_norm(x))[0]
    torch.testing.assert_close(block(x)[0], memory_output + block.mlp_norm(memory_output))


def test_the_published_model_of_associative_recall_has_its_number_of_parameters():
    """Attention of width 64 for 64 tokens in Arora et al. 2023."""
    settings = {"positions": {"name": "learned", "length": 64}, "norm": "layer", "bias": True, "head_norm": False}
    model = build_model(
        vocabulary=8192, width=64, heads=1, layers=2, mixer="kv_only", mlp="identity", tie_embeddings=True, **settings
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == 562_304


def test_dropout_on_the_embedding_leaves_the_layers_alone():
    model = build_model(**SMALL, dropout=0.5, dropout_on="embedding").train()
    assert model.drop.p == 0.5 and {block.drop.p for block in model.blocks} == {0.0}


def test_rescaled_normal_maps_into_the_stream_have_a_smaller_spread():
    model = build_model(width=64, layers=8, vocabulary=5, residual_init="rescaled_normal", init_std=0.4)
    std = model.blocks[0].memory.to_out.weight.std().item()
    assert std == pytest.approx(0.4 / 16**0.5, rel=0.05)
