"""Sizes of models: counted by hand, by torch, and for the paper's models."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, sdpa_backward_flop_count, sdpa_flop_count

import hqlt_lab as lab
from hqlt_lab.check.component_under_test import count_held_bytes
from hqlt_lab.components.attention._base import Attention
from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.update_rules._base import StepRule, UpdateRule
from hqlt_lab.model.analysis.component_sizes import ComponentSize, sizes
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel, build_model
from hqlt_lab.ops.flops import register_flop_formulas

TINY = {"vocabulary": 5, "width": 4, "heads": 2, "layers": 1, "mlp_width": 3}

# weights: projections 4 * 4 * 4, MLP 3 * 4 * 3, head 5 * 4; norms 4 before each sub-layer and head, 2 for the head norm
MAPS = [("norms", 14, 0, 0), ("projections", 64, 0, 128), ("mlp", 36, 0, 72), ("head", 20, 0, 40)]
COMMON = [("embedding", 20, 0, 0), ("document_length", 0, 8, 0), *MAPS]

# both heads.  From a state: k S, q S.  One chunk from an empty state: k k^T, (I + epsilon N)^-1, N u, q k^T, A u and
# k^T u.  Backward: the products of q k^T and A u five times, those of k k^T and (I + epsilon N)^-1 four times
STEP = 2 * (8 + 8)
SCAN_OF_3, BACKWARD_OF_3 = 2 * (5 * 36 + 24), 2 * (5 + 4) * 36
# three chunks of 27, 27 and 26 tokens, two heads of 2 channels; blocks of 16 in the inverse leave 11, 11 and 10 rows
SQUARES, INVERSE = 2 * 2 * (27**2 + 27**2 + 26**2), 2 * 16 * (2 * 11 * (16 + 11) + 10 * (16 + 10))
ALL, AFTER_FIRST, BEFORE_LAST = (8 * tokens for tokens in (80, 53, 54))
SCAN_OF_80 = 2 * (5 * SQUARES + ALL + 2 * AFTER_FIRST + INVERSE)
BACKWARD_OF_80 = 2 * ((5 + 4) * SQUARES + 4 * AFTER_FIRST + 2 * BEFORE_LAST)


def linear_size(component, parameters, state, per_token, length):
    return ComponentSize(component, parameters, state, per_token * length, 3 * per_token * length, per_token)


def expected_sizes(length, *own_sizes):
    common_sizes = [linear_size(*row, length) for row in COMMON]
    return {size.component: size for size in [*common_sizes, *own_sizes]}


def measured_sizes(length, **settings):
    return {size.component: size for size in sizes(build_model(**TINY | settings), length).components}


def test_deltanet_equals_the_count_by_hand():
    assert measured_sizes(3, mixer="fw_only") == expected_sizes(
        3,
        linear_size("update_rule", 8, 0, 16, 3),
        ComponentSize("fast_weights", 0, 2 * 2 * 2 * 4, SCAN_OF_3, SCAN_OF_3 + BACKWARD_OF_3, STEP),
    )


def test_transformer_equals_the_count_by_hand():
    forward = 2 * 2 * 9 * (2 + 2)
    backward = 2 * 2 * 9 * (3 * 2 + 2 * 2)
    decoding = 2 * 2 * 4 * (2 + 2)  # three cached keys, and its own
    softmax = ComponentSize("softmax", 0, 3 * 8 * 4, forward, forward + backward, decoding)
    assert measured_sizes(3, mixer="kv_only", timing={"name": "synchronous", "window": None}) == expected_sizes(
        3, softmax
    )


def test_hybrid_equals_the_count_by_hand():
    scores = 2 * 3 * 32 * 33  # two heads, three bands of 32 queries with 33 keys each
    forward, backward = 2 * scores * (2 + 2), 2 * scores * (3 * 2 + 2 * 2)
    assert measured_sizes(80, timing={"name": "synchronous", "window": 2}) == expected_sizes(
        80,
        linear_size("update_rule", 8, 0, 16, 80),
        linear_size("mixer", 16, 0, 32, 80),
        ComponentSize("softmax", 0, 2 * 8 * 4, forward, forward + backward, 2 * 2 * 3 * (2 + 2)),
        ComponentSize("fast_weights", 0, 2 * 2 * 2 * 4, SCAN_OF_80, SCAN_OF_80 + BACKWARD_OF_80, STEP),
    )


def compositions_of_kind(kind):
    return [{kind: name} for name in lab.available(kind)]


CHUNKS = {"name": "delayed_chunk", "window": 4}
WINDOWS = [{"name": "synchronous", "window": 4}, {"name": "synchronous", "window": None}, CHUNKS]
COMPOSITIONS = [
    *compositions_of_kind("update_rule"),
    *compositions_of_kind("mixer"),
    *({"attention": name, "timing": timing} for name in lab.available("attention") for timing in WINDOWS),
    {"attention": {"name": "softmax", "qk_norm": True, "gate": "channel", "logit_scale": "log_length"}},
    {"attention": [{"name": "forgetting", "gate": "head"}, "softmax"]},
    *(
        {"attention": name, "timing": WINDOWS[0] | {"sinks": 3}, "meta_tokens": 60}
        for name in lab.available("attention")
    ),
    *compositions_of_kind("positions"),
    *(
        {"feature_map": spec, "update_rule": "gated_delta"}
        for spec in ("dpfp", {"name": "dpfp", "nu": 2, "norm": "l2"})
    ),
    {"feature_map": {"name": "taylor", "dim": 3}, "update_rule": "linear_attention"},
    {"feature_map": "taylor", "update_rule": "retention", "timing": {"name": "delayed_chunk", "window": 4}},
    {"mlp": ["none", "gelu"], "positions": {"name": "learned", "length": 50}},
    {"layer_kind": ["gated_conv", "memory"], "mlp": "identity", "norm": "layer", "bias": True, "tie_embeddings": True},
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    {"timing": {"name": "synchronous", "window": None}},
    {"timing": {"name": "synchronous", "window": 20}, "layers": 4, "mixer": ["vector", "kv_only"]},
    {"timing": CHUNKS | {"hold": 39}, "mlp": "gelu", "bias": True, "norm": "layer", "head_norm": False},
    {"timing": CHUNKS, "update_rule": {"name": "delta_product", "steps": 3}, "short_conv": 4, "output_gate": True},
    {"timing": {"name": "delayed_stream", "window": 4, "gates": "own"}, "mixer": "fw_only"},
    {"tie_embeddings": True, "update_rule": {"name": "linear_attention", "normalizer": "none"}},
]
BASE = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mlp_width": 24}
LENGTH = 41


@pytest.fixture(params=COMPOSITIONS, ids=str)
def model(request):
    return build_model(**BASE | request.param)


def make_flop_counter():
    """Return a FlopCounterMode with formulas for our operators, CPU attention and depthwise convolutions.

    Torch's count of the weight gradient of a depthwise convolution is too large by the number of channels.
    """
    register_flop_formulas()
    aten = torch.ops.aten
    formulas = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda grad, q, k, v, *_, **__: (
            sdpa_backward_flop_count(grad, q, k, v)
        ),
        aten.convolution_backward: lambda grad, x, w, *_, **__: 2 * conv_flop_count(x, w, grad),
    }
    return FlopCounterMode(display=False, custom_mapping=formulas)


def test_flops_of_a_model_equal_those_counted_by_torch(model):
    model_sizes, tokens = sizes(model, LENGTH), torch.randint(0, 11, (3, LENGTH))
    with make_flop_counter() as counter:
        logits, state = model(tokens)
        forward = counter.get_total_flops()
        logits.square().sum().backward()
    assert forward == 3 * model_sizes.total.forward
    # the first step of a step-by-step rule has one gradient less: that of the empty initial state
    has_step_rule = any(isinstance(memory.update_rule, StepRule) for memory in model.memories)
    assert counter.get_total_flops() == pytest.approx(3 * model_sizes.total.training, rel=1e-3 if has_step_rule else 0)
    with torch.no_grad(), make_flop_counter() as counter:
        model(tokens[:, :1], state)
    assert counter.get_total_flops() == 3 * model_sizes.total.decoding


def test_flops_of_the_fused_loss_equal_those_of_the_head():
    model, tokens = build_model(**BASE), torch.randint(0, 11, (3, LENGTH))
    with make_flop_counter() as counter:
        losses, _ = model(tokens, labels=tokens)
        forward = counter.get_total_flops()
        losses.sum().backward()
    total = sizes(model, LENGTH).total
    assert (forward, counter.get_total_flops()) == (3 * total.forward, 3 * total.training)


def test_parameters_and_state_equal_those_of_the_tensors(model):
    total = sizes(model, LENGTH).total
    _, state = model(torch.randint(0, 11, (1, LENGTH)))
    assert total.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert total.state == sum(count_held_bytes(layer_state) for layer_state in state)


def test_sizes_on_the_meta_device_are_the_same(model):
    with torch.device("meta"):
        meta_model = SequenceModel(model.config)
    assert sizes(meta_model, LENGTH) == sizes(model, LENGTH)


class Bilinear(Mixer):
    """A user's mixer with a bare parameter: y = fw W kv."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.between = nn.Parameter(torch.ones(width // heads, width // heads))

    def forward(self, x, fw, kv):
        return (fw @ self.between) * kv


class Learned(FeatureMap):
    """A user's feature map, applied to each query and key of each head."""

    has_unit_norm = is_nonnegative = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_features = nn.Linear(width // heads, width // heads)

    def forward(self, u):
        return self.to_features(u)


def test_user_components_are_counted_by_running_them():
    with lab.temporary_components():
        lab.register("mixer", "bilinear")(Bilinear)
        lab.register("feature_map", "learned")(Learned)
        components = {"mixer": "bilinear", "feature_map": "learned", "timing": {"name": "delayed_chunk", "window": 3}}
        model_sizes = sizes(SequenceModel(ModelConfig(**TINY, **components)), 7)
    per_vector = 2 * 2 * 2
    assert model_sizes["mixer"] == linear_size("mixer", 4, 0, 2 * per_vector, 7)
    # two heads, a query and a key per token; decoding replays the keys of the hold block of three
    forward = 2 * 2 * per_vector * 7
    assert model_sizes["feature_map"] == ComponentSize(
        "feature_map", 6, 0, forward, 3 * forward, 2 * (1 + 3) * per_vector
    )


class Projected(Attention):
    """A user's attention component with a product per key."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_key = nn.Linear(width // heads, width // heads, bias=False)

    def transform(self, x, inputs):
        return inputs._replace(k=self.to_key(inputs.k))


def test_user_attention_is_counted_for_each_key_that_it_reads():
    timing = {"name": "synchronous", "window": 3, "sinks": 1}
    with lab.temporary_components():
        lab.register("attention", "projected")(Projected)
        model_sizes = sizes(SequenceModel(ModelConfig(**TINY, attention="projected", timing=timing)), 7)
    per_key = 2 * 2 * 2 * 2  # two heads
    forward = 7 * per_key
    # decoding reads a cache of three tokens, a sink and the token itself
    assert model_sizes["attention"] == ComponentSize("attention", 4, 0, forward, 3 * forward, 5 * per_key)


class Quadratic(UpdateRule):
    """A user's rule with its own scan: all pairs at once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_gate = nn.Linear(width, heads)

    def gates(self, x):
        return (self.to_gate(x).transpose(1, 2),)

    def scan(self, q, k, v, gates, state, context):
        return (q @ k.transpose(-1, -2)).tril() @ v, k.transpose(-1, -2) @ v


def test_user_scan_is_counted_without_allocating_memory():
    tokens, heads, channels = 2**18, 2, 2  # all pairs would take half a terabyte
    with lab.temporary_components(), torch.device("meta"):
        lab.register("update_rule", "quadratic")(Quadratic)
        model_sizes = sizes(SequenceModel(ModelConfig(**TINY, update_rule="quadratic")), tokens)
    assert model_sizes["fast_weights"].forward == 2 * heads * (
        2 * tokens * tokens * channels + tokens * channels * channels
    )


HYBRID = {"update_rule": {"name": "delta", "max_beta": 2}, "timing": {"name": "synchronous", "window": 64}}
TRANSFORMER = {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}, "head_norm": False}
PAPER = {
    "hybrid 340M": ({"width": 1024, "heads": 8} | HYBRID, 399_233_024),
    "hybrid 1B": ({"width": 2048, "heads": 16} | HYBRID, 1_465_750_528),
    "DeltaNet 1B": ({"width": 2048, "heads": 16, "mixer": "fw_only"}, 1_365_087_232),
    "Transformer++ 340M": ({"width": 1024, "heads": 16} | TRANSFORMER, 373_867_520),
}


@pytest.mark.parametrize(("settings", "parameters"), PAPER.values(), ids=PAPER)
def test_paper_models_take_six_flops_per_weight_and_token_plus_those_of_the_memories(settings, parameters):
    with torch.device("meta"):
        model_sizes = sizes(SequenceModel(ModelConfig(vocabulary=32000, layers=24, **settings)), 2048)
    memories = model_sizes["softmax"].training + model_sizes["fast_weights"].training
    linear_weights = parameters - model_sizes["embedding"].parameters - model_sizes["norms"].parameters
    assert model_sizes.total.parameters == parameters
    assert model_sizes.total.training == 6 * 2048 * linear_weights + memories
    assert model_sizes.total.training / (6 * 2048 * parameters) == pytest.approx(1, abs=0.25)


def test_memories_of_the_paper_hybrid_equal_the_count_by_hand():
    with torch.device("meta"):
        model_sizes = sizes(
            SequenceModel(ModelConfig(vocabulary=32000, layers=24, width=1024, heads=8, **HYBRID)), 2048
        )
    layers_and_heads, d, window, chunk = 24 * 8, 128, 64, 32
    softmax = 2 * 2048 * (2 * window - 1) * (2 + 5) * d
    chunks, later = 2048 // chunk, 2048 // chunk - 1
    inverse = 16 * 16 * 16 + 16 * 16 * 16  # products between the two blocks of 16
    forward = 2 * (chunks * (5 * chunk * chunk * d + chunk * d * d + inverse) + later * 2 * chunk * d * d)
    backward = 2 * (chunks * 9 * chunk * chunk * d + later * 6 * chunk * d * d)
    assert model_sizes["softmax"].training == layers_and_heads * softmax
    assert model_sizes["fast_weights"].training == layers_and_heads * (forward + backward)
    assert model_sizes["softmax"].state == layers_and_heads * 2 * window * d * 4
    assert model_sizes["fast_weights"].state == layers_and_heads * d * d * 4
