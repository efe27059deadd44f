"""Memories of different sizes, with shared and separate projections, and head_split: identities, sizes, errors."""

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.check.common_checks import PADDED_AND_PACKED, assert_declared_state_size, assert_streaming_equals_one_pass
from hqlt_lab.check.component_under_test import fixed_noise, flatten_tensors, small_spec
from hqlt_lab.check.unpacked_reference import assert_matches_separate_documents
from hqlt_lab.components._heads import split_heads
from hqlt_lab.model.analysis.component_sizes import ComponentSize, sizes
from hqlt_lab.model.analysis.layer_probes import probe
from hqlt_lab.model.analysis.roofline import roofline
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.memory_size_config import MemorySize
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available
from hqlt_lab.train.per_memory_training import own_parameters
from tests.issues import raises_issue

WIDTH, HEADS = 8, 2
BASE = {"width": WIDTH, "heads": HEADS, "layers": 1, "mlp": "none", "init_std": 0.5}
DIFFERENT = {
    "fw": {"heads": 3, "key_dim": 6, "value_dim": 5},
    "kv": {"heads": 4, "groups": 2, "key_dim": 2, "value_dim": 3},
    "projections": "separate",
}
FULL = {"name": "synchronous", "window": None}
TIMINGS = [FULL, *(small_spec("timing", name) for name in available("timing"))]
OWN_GATES = {"name": "delayed_stream", "window": 3, "gates": "own", "sinks": 2}


def make_model(**settings):
    return build_model(**BASE | settings).double()


def test_written_out_sizes_and_groups_equal_to_heads_change_nothing_bit_for_bit():
    x = fixed_noise(2, 9, WIDTH)
    equal = {"heads": 2, "key_dim": 4, "value_dim": 4}
    plain, written_out = make_model(), make_model(head_dim=4, fw=equal, kv=equal | {"groups": 2})
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in written_out.named_parameters()]
    (y, state), (expected, expected_state) = written_out(x), plain(x)
    assert torch.equal(y, expected)
    assert torch.equal(state[0].kv_cache.k, expected_state[0].kv_cache.k) and state[0].fw_cache is None
    assert torch.equal(state[0].fw, expected_state[0].fw)


@pytest.mark.parametrize("timing", [*TIMINGS, OWN_GATES], ids=str)
@pytest.mark.parametrize("rule", ["delta", {"name": "delta_product", "steps": 2}, "kda"], ids=str)
def test_separate_projections_with_equal_weights_are_the_shared_ones(rule, timing):
    settings = {"update_rule": rule, "timing": timing, "short_conv": 3, "bias": True, "attention": "forgetting"}
    shared, separate = make_model(**settings), make_model(**settings, projections="separate")
    weights = shared.state_dict()
    for name in separate.state_dict():
        if ".projections." in name:
            weight = weights[name.replace(".projections.fw", "").replace(".projections.kv", "")]
            # softmax reads the first write of a token
            if ".kv." in name and "to_q" not in name and "convolutions.0" not in name:
                writes = shared.memories[0].writes
                weight = weight.unflatten(0, (HEADS, writes, -1))[:, 0].flatten(0, 1)
            weights[name] = weight
    separate.load_state_dict({name: weights[name] for name in separate.state_dict()})
    x, x_next = fixed_noise(2, 9, WIDTH), fixed_noise(2, 4, WIDTH, seed=1)
    (y, state), (expected, expected_state) = separate(x), shared(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(separate(x_next, state)[0], shared(x_next, expected_state)[0])


@pytest.mark.parametrize("timing", [*TIMINGS, OWN_GATES], ids=str)
@pytest.mark.parametrize("attention", [{"name": name, "qk_norm": True} for name in available("attention")], ids=str)
def test_groups_are_heads_with_repeated_keys_and_values(attention, timing):
    settings = {"heads": 4, "timing": timing, "attention": attention, "short_conv": 3, "update_rule": "gated_delta"}
    grouped, full = make_model(**settings, kv={"groups": 2}), make_model(**settings)
    weights = grouped.state_dict()
    for name in ("to_k.weight", "to_v.weight", "convolutions.1.weight", "convolutions.2.weight"):
        weight = weights[f"blocks.0.memory.{name}"].unflatten(0, (2, -1))
        weights[f"blocks.0.memory.{name}"] = weight.repeat_interleave(2, 0).flatten(0, 1)
    full.load_state_dict(weights)
    x, x_next = fixed_noise(2, 9, WIDTH), fixed_noise(2, 4, WIDTH, seed=1)
    (y, state), (expected, expected_state) = grouped(x), full(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grouped(x_next, state)[0], full(x_next, expected_state)[0])
    assert state[0].kv_cache.k.shape[1] == 2 and expected_state[0].kv_cache.k.shape[1] == 4


def test_layer_of_two_sizes_equals_the_formula():
    settings = {"mixer": "sum", "update_rule": "linear_attention", "feature_map": "elu_plus_one", "positions": "none"}
    settings |= {"head_norm": False, "output_gate": True, "timing": FULL}
    layer = make_model(**DIFFERENT, **settings).memories[0]
    x = fixed_noise(2, 6, WIDTH)
    mask = torch.ones(6, 6).tril().bool()

    def project(name, heads, groups):
        projections = layer.projections[name]
        q = split_heads(projections.to_q(x), heads)
        k, v = split_heads(projections.to_k(x), groups), split_heads(F.silu(projections.to_v(x)), groups)
        return q, *(u.repeat_interleave(heads // groups, 1) for u in (k, v))

    q, k, v = project("kv", 4, 2)
    kv = (q @ k.mT / 2**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v
    q, k, v = project("fw", 3, 3)
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).where(mask, 0.0)
    fw = scores @ v / scores.sum(-1, keepdim=True)
    assert (kv.shape, fw.shape) == ((2, 4, 6, 3), (2, 3, 6, 5))
    maps = layer.output_maps
    mixed = sum(maps[name](output.transpose(1, 2).flatten(2)) for name, output in (("fw", fw), ("kv", kv)))
    torch.testing.assert_close(layer(x)[0], layer.to_out(mixed * F.silu(layer.to_gate(x))))


def test_output_with_the_channels_of_the_mixer_is_not_mapped():
    memory = make_model(fw={"heads": 1, "value_dim": 8}, projections="separate").memories[0]
    assert memory.output_maps is None and memory.sizes["fw"] == MemorySize(1, 1, 4, 8)


def test_layer_with_one_memory_has_neither_map_nor_projections_of_another_size():
    """The size of a published layer: keys of 0.75 * width / heads channels, values twice as wide."""
    memory = make_model(**DIFFERENT | {"projections": "shared"}, mixer="fw_only", output_gate=True).memories[0]
    shapes = {name: tuple(parameter.shape) for name, parameter in memory.named_parameters() if "update" not in name}
    assert shapes == {
        "to_q.weight": (18, 8),
        "to_k.weight": (18, 8),
        "to_v.weight": (15, 8),
        "norm.weight": (5,),
        "to_gate.weight": (15, 8),
        "to_out.weight": (8, 15),
    }


def test_head_dim_is_that_of_both_memories_and_of_the_mixer():
    memory = make_model(heads=3, head_dim=6, output_gate=True).memories[0]
    shapes = {name: tuple(parameter.shape) for name, parameter in memory.named_parameters() if "update" not in name}
    maps = dict.fromkeys(("mixer.to_choice", "to_q", "to_k", "to_v", "to_gate"), (18, 8)) | {"to_out": (8, 18)}
    assert shapes == {f"{name}.weight": shape for name, shape in maps.items()} | {"norm.weight": (6,)}


COMPOSITIONS = [
    DIFFERENT | {"timing": OWN_GATES, "update_rule": "gdn2", "attention": "forgetting", "meta_tokens": 2},
    DIFFERENT | {"timing": OWN_GATES, "update_rule": {"name": "delta_product", "steps": 2}, "layers": 2}
    | {"mixer": ["normalized", "fw_only"], "short_conv": 3, "output_gate": True},
    DIFFERENT | {"timing": small_spec("timing", "delayed_chunk"), "update_rule": "rwkv7", "positions": "rope"}
    | {"attention": {"name": "softmax", "gate": "channel", "qk_norm": True}},
    DIFFERENT | {"timing": FULL, "update_rule": "linear_attention", "feature_map": "taylor", "mixer": "vector"},
    {"head_dim": 6, "kv": {"groups": 1}, "timing": OWN_GATES, "feature_map": "dpfp", "short_conv": 3, "meta_tokens": 1},
    {"heads": 4, "mixer": {"name": "head_split", "fw_heads": 3}, "timing": OWN_GATES, "meta_tokens": 1, "short_conv": 3}
    | {"update_rule": {"name": "delta_product", "steps": 2}, "attention": "forgetting"},
    {"heads": 4, "layers": 2, "mixer": [{"name": "head_split", "fw_heads": 1}, "kv_only"], "timing": FULL}
    | {"fw": {"key_dim": 6, "value_dim": 5}, "update_rule": "gla"},
    {"head_dim": 6, "kv": {"groups": 1}, "timing": small_spec("timing", "delayed_chunk"), "update_rule": "hgrn2"}
    | {"layers": 2, "mixer": ["kv_only", "scalar"]},
]  # fmt: skip


@pytest.mark.parametrize("settings", COMPOSITIONS, ids=str)
def test_compositions_stream_pad_and_pack_correctly(settings):
    model = make_model(**settings)
    assert_streaming_equals_one_pass(model, "", ([4, 3], [1] * 7))
    with torch.no_grad():
        assert_matches_separate_documents(model, "", fixed_noise(2, 7, WIDTH), PADDED_AND_PACKED, [None, [4, 3]])
        assert_declared_state_size(model, "", model(fixed_noise(1, 7, WIDTH))[1], 7)


@pytest.mark.parametrize("settings", COMPOSITIONS[:1] + COMPOSITIONS[4:5], ids=str)
def test_every_parameter_gets_a_gradient_and_the_probes_measure_each_head(settings):
    model, x = make_model(**settings), fixed_noise(2, 9, WIDTH)
    model(x)[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())
    memory = model.memories[0]
    probes = probe(model, x).layers[0]
    lengths = {name: len(probes[name]) for name in ("norm_fw", "share", "state_norm", "entropy")}
    fw_heads, kv_heads = (memory.sizes[name].heads for name in ("fw", "kv"))
    assert lengths == {"norm_fw": 2, "share": 2, "state_norm": fw_heads, "entropy": kv_heads}


def test_parameters_and_state_equal_the_count_by_hand():
    model = build_model(**BASE, **DIFFERENT, mixer="sum", timing={"name": "delayed_stream", "window": 3}, short_conv=3)
    fw = 8 * (3 * 6 + 3 * 6 + 3 * 5)  # queries, keys and values of 3 heads
    kv = 8 * (4 * 2 + 2 * 2 + 2 * 3)  # queries of 4 heads, keys and values of 2
    maps = 3 * 5 * 8 + 4 * 3 * 8 + 8 * 8  # both outputs to the width, and the output of the layer
    inputs = 3 * (6 + 6 + 5) + 4 * 2 + 2 * (2 + 3)  # channels of the convolutions
    total = sizes(model, 20)
    assert total["projections"].parameters == fw + kv + maps
    assert total["convolutions"] == ComponentSize(
        "convolutions", 3 * inputs, 2 * inputs * 4, 20 * 6 * inputs, 3 * 20 * 6 * inputs, 6 * inputs
    )
    assert total["softmax"].state == 3 * 2 * (2 + 3) * 4  # three tokens in groups
    assert total["fast_weights"].state == 3 * 6 * 5 * 4 + 3 * 3 * (6 + 5) * 4  # the matrices, and three tokens to write


def test_flops_equal_the_count_by_hand():
    model = build_model(**BASE, **DIFFERENT, mixer="sum", timing=FULL)
    total = sizes(model, 3)
    scores = 4 * 9
    assert total["softmax"].forward == 2 * scores * (2 + 3)
    assert total["softmax"].training == 2 * scores * (2 + 3) + 2 * scores * (3 * 2 + 2 * 3)
    assert total["softmax"].decoding == 2 * 4 * 4 * (2 + 3)
    # a chunk of 3 tokens and heads, from an empty state: k k^T, N u and the inverse, q k^T, A u and k^T u
    assert total["fast_weights"].forward == 3 * 2 * (9 * (6 + 5 + 5 + 6 + 5) + 3 * 6 * 5)
    assert total["fast_weights"].decoding == 3 * 2 * (6 * 5 + 6 * 5)
    assert total["projections"].forward == 3 * 2 * total["projections"].parameters


def test_traffic_equals_the_count_by_hand():
    costs = {cost.component: cost for cost in roofline(build_model(**BASE, **DIFFERENT), 7, 1e12).costs}
    q, k, v, outputs = 4 * 2, 2 * 2, 2 * 3, 4 * 3
    traffic = {
        "softmax": q + k + v + outputs,
        "positions": 2 * 2 * 4 * 2,  # on the keys of each head
        "feature_map": 2 * 2 * 3 * 6,
        "fast_weights": 2 * 3 * 6 + 2 * 3 * 5 + 3,
        "mixer": 4 * 8,
    }
    assert {name: costs[name].bytes / 6 for name in traffic} == pytest.approx(traffic)


def test_separate_projections_are_trained_with_their_memory():
    model = make_model(**DIFFERENT, mixer="sum", short_conv=2)
    names = {id(parameter): name.removeprefix("blocks.0.memory.") for name, parameter in model.named_parameters()}
    own = {memory: {names[id(parameter)] for parameter in own_parameters(model, memory)} for memory in ("fw", "kv")}
    for memory, others in (("fw", {"update_rule.to_beta.weight"}), ("kv", set())):
        projections = {f"projections.{memory}.{name}.weight" for name in ("to_q", "to_k", "to_v")}
        convolutions = {f"projections.{memory}.convolutions.{index}.weight" for index in range(3)}
        assert own[memory] == {f"output_maps.{memory}.weight"} | projections | convolutions | others


@pytest.mark.parametrize(
    ("settings", "path", "code"),
    [
        ({"head_dim": 0}, "head_dim", "below_minimum"),
        ({"fw": {"heads": 0}}, "fw.heads", "below_minimum"),
        ({"kv": {"value_dim": 2**30}}, "kv.value_dim", "above_maximum"),
        ({"fw": {"groups": 1}}, "fw.groups", "unknown_setting"),
        ({"kv": {"key_dim": 2.5}}, "kv.key_dim", "setting_of_wrong_type"),
        ({"projections": "both"}, "projections", "setting_of_wrong_type"),
        ({"kv": {"groups": 3}, "heads": 4}, "kv.groups", "groups_not_divisible"),
        ({"kv": {"key_dim": 3}, "mixer": "kv_only", "positions": "rope"}, "positions", "odd_head_width"),
        ({"fw": {"key_dim": 6}}, "projections", "memories_differ_in_size"),
        ({"kv": {"heads": 4}}, "projections", "memories_differ_in_size"),
        ({"mixer": {"name": "head_split", "fw_heads": 3}}, "mixer.fw_heads", "out_of_range"),
        ({"mixer": {"name": "head_split", "fw_heads": -1}}, "mixer.fw_heads", "out_of_range"),
        ({"mixer": "head_split", "kv": {"heads": 2}}, "kv.heads", "heads_set_by_mixer"),
        (
            {"mixer": {"name": "head_split", "fw_heads": 1}, "heads": 4, "kv": {"groups": 2}},
            "kv.groups",
            "groups_not_divisible",
        ),
    ],
)  # fmt: skip
def test_wrong_sizes_are_rejected(settings, path, code):
    with raises_issue(path, code):
        build_model(**BASE | settings)


def test_memories_of_layers_that_have_only_one_may_differ_in_size():
    model = make_model(fw={"key_dim": 6}, kv={"groups": 1}, mixer=["fw_only", "kv_only"], layers=2)
    assert [list(memory.sizes.values()) for memory in model.memories] == [
        [MemorySize(2, 2, 6, 4)],
        [MemorySize(2, 1, 4, 4)],
    ]
    assert ModelConfig(kv={"groups": None}).kv == {}


@pytest.mark.parametrize(("fw_heads", "mixer"), [(2, "fw_only"), (0, "kv_only")])
@pytest.mark.parametrize(
    "sizes", [{}, {"fw": {"key_dim": 6, "value_dim": 3}, "kv": {"groups": 1, "value_dim": 3}}], ids=str
)
def test_head_split_with_all_heads_in_one_memory_is_this_memory_alone_bit_for_bit(fw_heads, mixer, sizes):
    settings = {"timing": OWN_GATES, "update_rule": "gated_delta", "short_conv": 3, "output_gate": True} | sizes
    split = make_model(**settings, mixer={"name": "head_split", "fw_heads": fw_heads})
    alone, x = make_model(**settings, mixer=mixer), fixed_noise(2, 9, WIDTH)
    weights, expected_weights = split.state_dict(), alone.state_dict()
    assert list(weights) == list(expected_weights)
    assert all(torch.equal(weights[name], expected_weights[name]) for name in weights)
    (y, state), (expected, expected_state) = split(x), alone(x)
    assert torch.equal(y, expected)
    pairs = zip(flatten_tensors(state), flatten_tensors(expected_state), strict=True)
    assert all(torch.equal(actual, expected) for actual, expected in pairs)


@pytest.mark.parametrize("timing", [*TIMINGS, OWN_GATES], ids=str)
def test_head_split_is_a_layer_of_each_memory_side_by_side(timing):
    settings = {"heads": 4, "timing": timing, "head_norm": False, "update_rule": "kda", "attention": "forgetting"}
    split = make_model(**settings, mixer={"name": "head_split", "fw_heads": 3}).memories[0]
    x, outputs = fixed_noise(2, 9, WIDTH), []
    for memory, heads in (("fw", 3), ("kv", 1)):
        alone = make_model(**settings | {"heads": heads, "head_dim": 2}, mixer=f"{memory}_only").memories[0]
        weights = split.state_dict()
        own = {name.removeprefix(f"projections.{memory}."): weight for name, weight in weights.items()}
        own["to_out.weight"] = torch.eye(heads * 2, dtype=torch.float64)
        alone.to_out = torch.nn.Linear(heads * 2, heads * 2, bias=False, dtype=torch.float64)
        alone.load_state_dict({name: own[name] for name in alone.state_dict()})
        outputs.append(alone(x)[0])
    torch.testing.assert_close(split(x)[0], split.to_out(torch.cat(outputs, -1)))


def test_head_split_counts_each_memory_for_its_own_heads():
    settings = BASE | {"heads": 4, "short_conv": 3, "timing": FULL}
    split, fw_only, kv_only = (
        sizes(build_model(**settings, mixer=mixer), 20)
        for mixer in ({"name": "head_split", "fw_heads": 3}, "fw_only", "kv_only")
    )
    for quantity in ("state", "forward", "training", "decoding"):
        assert 4 * getattr(split["fast_weights"], quantity) == 3 * getattr(fw_only["fast_weights"], quantity)
        assert 4 * getattr(split["softmax"], quantity) == getattr(kv_only["softmax"], quantity)
    for component in ("projections", "convolutions"):
        assert split[component] == fw_only[component] == kv_only[component]
    assert 4 * split["update_rule"].parameters == 3 * fw_only["update_rule"].parameters
    assert split["mixer"].parameters == 0


def test_probes_of_head_split_show_which_memory_answers_a_head():
    model = make_model(heads=4, mixer={"name": "head_split", "fw_heads": 3})
    probes = probe(model, fixed_noise(2, 9, WIDTH))
    assert probes["share"].tolist() == [[1.0, 1.0, 1.0, 0.0]]
    lengths = {name: probes[name].shape[1] for name in ("norm_fw", "norm_kv", "state_norm", "entropy")}
    assert lengths == {"norm_fw": 3, "norm_kv": 1, "state_norm": 3, "entropy": 1}
