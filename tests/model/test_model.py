"""The whole model: settings, layers of different kinds, initialisation, streaming, state."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.subject import in_pieces, tensors
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import ModelConfig, model_config
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.sequence_model import SequenceModel, build_model

SMALL = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mlp_width": 16, "init_std": 0.3}


WORDS = torch.randint(0, 11, (3, 23), generator=torch.Generator().manual_seed(5))


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
    ],
)
def test_layers_of_different_kinds_stream_like_a_whole(settings):
    model = build_model(**SMALL | settings).double()
    whole, state = model(WORDS)
    for split in ([11, 12], [1] * 23, [2, 1, 9, 4, 7]):
        logits, last = in_pieces(model, WORDS, split)
        torch.testing.assert_close(logits, whole)
        torch.testing.assert_close(tensors(last), tensors(state))


def test_streaming_passes_gradients_across_calls():
    model = build_model(**SMALL, timing={"name": "delayed_chunk", "window": 5}).double().train()
    whole = torch.autograd.grad(model(WORDS)[0].square().sum(), list(model.parameters()))
    parts = torch.autograd.grad(in_pieces(model, WORDS, [4, 19])[0].square().sum(), list(model.parameters()))
    for one, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(one, other)


def test_rows_that_have_seen_different_numbers_of_tokens_go_on_together():
    model = build_model(**SMALL, timing={"name": "delayed_chunk", "window": 5}, short_conv=3).double()
    _, short = model(WORDS[:1, :6])
    _, long = model(WORDS[1:2, :13])
    both = tuple(joined(one, other) for one, other in zip(short, long, strict=True))
    together, _ = model(WORDS[:2, 13:], both)
    torch.testing.assert_close(together[:1], model(WORDS[:1, 13:], short)[0])
    torch.testing.assert_close(together[1:], model(WORDS[1:2, 13:], long)[0])


def joined(one, other):
    """Two rows' states as one: all fields are tensors with the row first."""
    if isinstance(one, torch.Tensor):
        return torch.cat([one, other])
    if isinstance(one, tuple):
        parts = [joined(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one


def test_parity_in_bfloat16_does_not_make_the_memory_grow():
    """Keys that are unit vectors only up to rounding would blow up under 2,000 reflections."""
    model = build_model(width=64, heads=1, layers=1, update_rule={"name": "delta", "max_beta": 2}, mixer="fw_only")
    memory = model.memories[0]
    x = torch.randn(1, 1, 64).expand(1, 2000, 64)
    with torch.no_grad():
        memory.update_rule.to_beta.weight.copy_(x[0, :1] * 20 / x[0, 0].square().sum())  # beta is 2 all the time
        states = [memory.to(dtype)(x.to(dtype))[1].fw.abs().max() for dtype in (torch.float32, torch.bfloat16)]
    assert states[1] < 3 * states[0]


def test_a_text_without_tokens_is_refused():
    with pytest.raises(ValueError, match="The text has no tokens"):
        build_model(**SMALL)(torch.zeros(1, 0, dtype=torch.long))


def test_the_state_has_the_papers_size_and_does_not_grow():
    model = build_model(width=64, heads=2, layers=1, timing={"name": "delayed_stream", "window": 16})
    for length in (5, 200):
        _, (state,) = model(torch.randn(1, length, 64))
        numbers = sum(field.numel() for field in (state.ring.k, state.ring.v, state.fw))
        assert numbers == 2 * (16 * (32 + 32) + 32 * 32)
        assert state.count.tolist() == [length]


def test_a_memory_that_is_not_read_is_not_built():
    fw = build_model(**SMALL, mixer="fw_only").memories[0]
    kv = build_model(**SMALL, mixer="kv_only").memories[0]
    assert fw.positions is None and kv.update_rule is None and kv.feature_map is None
    assert fw(torch.randn(1, 5, 16))[1].ring is None
    assert kv(torch.randn(1, 5, 16))[1].fw is None


def test_arms_of_one_seed_differ_only_where_they_differ():
    one, other = build_model(seed=4, **SMALL, mixer="sum"), build_model(seed=4, **SMALL, mixer="vector")
    shared = dict(one.named_parameters())
    assert all(torch.equal(value, shared[name]) for name, value in other.named_parameters() if name in shared)
    assert not torch.equal(build_model(seed=5, **SMALL).head.weight, other.head.weight)


def test_drawing_weights_does_not_touch_the_random_numbers_of_others():
    config = model_config(SMALL | {"update_rule": "gated_delta"})
    model = SequenceModel(config)
    before = torch.get_rng_state()
    initialise(model, config, seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_weights_start_as_the_paper_says():
    model = build_model(vocabulary=500, width=256, heads=4, layers=3)
    assert model.embed.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.memories[1].to_q.weight.std().item() == pytest.approx(0.02, rel=0.05)
    bound = 1 / (256 * 2 * 3) ** 0.5
    assert bound * 0.99 < model.memories[1].to_out.weight.abs().max().item() <= bound
    normal = build_model(vocabulary=500, width=256, heads=4, layers=3, residual_init="normal")
    assert normal.memories[1].to_out.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert all((norm.weight == 1).all() for norm in model.modules() if isinstance(norm, torch.nn.RMSNorm))


def test_a_part_with_parameters_of_its_own_must_say_how_they_start():
    with lab.temporarily():

        @lab.register("mixer", "unset")
        class Unset(type(lab.build("mixer", "sum"))):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(1))

        with pytest.raises(ConfigError, match=r"Unset owns weight and has no reset_parameters\(\)"):
            build_model(**SMALL, mixer="unset")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"widht": 8}, "widht: there is no such setting. Did you mean 'width'?"),
        ({"width": "8"}, "width: int is needed, got '8'."),
        ({"head_norm": 1}, "head_norm: bool is needed, got 1."),
        ({"norm": "batch"}, "norm: rms | layer is needed, got 'batch'."),
        ({"width": 128, "heads": 3}, "heads: 128 channels do not divide over 3 heads. Use one of 1, 2, 4, 8, 16,"),
        ({"layers": 0}, "layers: at least 1 is needed, got 0."),
        ({"mixer": "vectr"}, "mixer: no mixer is called 'vectr'. Did you mean 'vector'?"),
        ({"mixer": ["sum", "vectr"]}, "mixer[1]: no mixer is called 'vectr'."),
        ({"mixer": ["sum"] * 3}, "mixer: a list of 3 parts does not repeat evenly over 2 layers."),
        (
            {"update_rule": {"name": "delta", "beta": 2}},
            "update_rule 'delta' has no option 'beta'. Did you mean 'max_beta'?",
        ),
        ({"tie_embeddings": True}, "tie_embeddings: there are no embeddings to tie without a vocabulary."),
        ({"positions": None}, "positions: no positions is called None. Did you mean 'none'?"),
    ],
)
def test_a_setting_that_makes_no_model_is_told(settings, says):
    with pytest.raises(ConfigError) as told:
        model_config({"layers": 2} | settings)
    assert says in str(told.value)


def test_all_wrong_parts_are_told_at_once():
    with pytest.raises(ConfigError) as told:
        ModelConfig(mixer="vectr", timing={"name": "synchronous", "windw": 3}, update_rule="dleta")
    assert len(str(told.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"update_rule": "delta", "feature_map": "elu_plus_one"}, "'delta' diverges unless keys are unit vectors"),
        ({"update_rule": "linear_attention", "feature_map": "silu_l2"}, "'linear_attention' may vanish where features"),
        ({"positions": ["rope", "sinusoidal"]}, "Sinusoidal is added to the input, so every layer has it."),
        ({"width": 6, "heads": 2, "positions": "rope"}, "a head of 3 has an odd number"),
        ({"timing": {"name": "synchronous", "window": 0}}, "timing.window: at least 1 is needed, got 0."),
        ({"update_rule": {"name": "delta_product", "steps": 0}}, "update_rule.steps: at least 1 is needed, got 0."),
    ],
)
def test_parts_that_do_not_go_together_are_refused_with_the_reason(settings, says):
    with pytest.raises(ConfigError) as told:
        build_model(**SMALL | settings)
    assert says in str(told.value)


def test_linear_attention_without_normaliser_goes_with_any_features():
    rule = {"name": "linear_attention", "normaliser": "none"}
    assert build_model(**SMALL, update_rule=rule, feature_map="silu_l2").memories[0].feature_map.unit


def test_every_composition_has_only_tensors_in_its_state():
    _, state = build_model(**SMALL, update_rule="gated_delta", timing="delayed_chunk", short_conv=4)(WORDS)
    assert all(isinstance(leaf, torch.Tensor) and len(leaf) == 3 for leaf in tensors(state))


def test_dropout_is_for_training_and_drops_inputs_and_what_sub_layers_add():
    x = torch.randn(2, 7, 16)
    plain, dropping = (lab.build_model(width=16, heads=2, mlp_width=16, dropout=rate) for rate in (0.0, 0.5))
    assert torch.equal(plain(x)[0], dropping.eval()(x)[0])
    assert not torch.equal(dropping.train()(x)[0], dropping(x)[0])
    seen = []
    for drop in (dropping.drop, *(block.drop for block in dropping.blocks)):
        drop.register_forward_hook(lambda module, given, answer: seen.append((answer == 0).float().mean()))
    dropping(x)
    assert len(seen) == 1 + 2 * 2 and all(0.3 < share < 0.7 for share in seen)
