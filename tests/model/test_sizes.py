"""Sizes: counted by hand, by torch, and for the paper's models."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, sdpa_backward_flop_count, sdpa_flop_count

import hqlt_lab as lab
from hqlt_lab.check.subject import tensors
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.update_rules._base import StepRule, UpdateRule
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel, build_model
from hqlt_lab.model.sizes import Size, sizes
from hqlt_lab.ops.flops import teach_torch

TINY = {"vocabulary": 5, "width": 4, "heads": 2, "layers": 1, "mlp_width": 3}

# weights: projections 4 * 4 * 4, MLP 3 * 4 * 3, head 5 * 4; norms 4 before each sub-layer and the head, 2 in the heads
MAPS = [("norms", 14, 0, 0), ("projections", 64, 0, 128), ("mlp", 36, 0, 72), ("head", 20, 0, 40)]
ALWAYS = [("embedding", 20, 0, 0), ("count", 0, 8, 0), *MAPS]

# both heads.  From a state: k S, q S.  One chunk from nothing: k k^T, T^-1, N u, q k^T, A u, k^T u.  Backwards: the
# products of q k^T and A u five times, those of k k^T and T^-1 four times
STEP = 2 * (8 + 8)
SCAN_OF_3, BACK_OF_3 = 2 * (5 * 36 + 24), 2 * (5 + 4) * 36
SCAN_OF_80, BACK_OF_80 = 2 * (2 * (5 * 6400 + 320) + 2 * 320), 2 * (2 * (5 + 4) * 6400 + 6 * 320)  # two chunks


def flops(part, parameters, state, per_token, length):
    return Size(part, parameters, state, per_token * length, 3 * per_token * length, per_token)


def by_hand(length, *own):
    always = [flops(*row, length) for row in ALWAYS]
    return {size.part: size for size in [*always, *own]}


def found(length, **settings):
    return {size.part: size for size in sizes(build_model(**TINY | settings), length).parts}


def test_a_delta_net_is_what_is_counted_by_hand():
    assert found(3, mixer="fw_only") == by_hand(
        3,
        flops("update_rule", 8, 0, 16, 3),
        Size("fast_weights", 0, 2 * 2 * 2 * 4, SCAN_OF_3, SCAN_OF_3 + BACK_OF_3, STEP),
    )


def test_a_transformer_is_what_is_counted_by_hand():
    forward = 2 * 2 * 9 * (2 + 2)
    backward = 2 * 2 * 9 * (3 * 2 + 2 * 2)
    decoding = 2 * 2 * 4 * (2 + 2)  # three keys from before, and its own
    softmax = Size("softmax", 0, 3 * 8 * 4, forward, forward + backward, decoding)
    assert found(3, mixer="kv_only", timing={"name": "synchronous", "window": None}) == by_hand(3, softmax)


def test_a_hybrid_is_what_is_counted_by_hand():
    scores = 2 * 3 * 32 * 33  # two heads, three bands of 32 queries and the 33 keys that they reach
    forward, backward = 2 * scores * (2 + 2), 2 * scores * (3 * 2 + 2 * 2)
    assert found(80, timing={"name": "synchronous", "window": 2}) == by_hand(
        80,
        flops("update_rule", 8, 0, 16, 80),
        flops("mixer", 16, 0, 32, 80),
        Size("softmax", 0, 2 * 8 * 4, forward, forward + backward, 2 * 2 * 3 * (2 + 2)),
        Size("fast_weights", 0, 2 * 2 * 2 * 4, SCAN_OF_80, SCAN_OF_80 + BACK_OF_80, STEP),
    )


def of_kind(kind):
    return [{kind: name} for name in lab.available(kind)]


CHUNKS = {"name": "delayed_chunk", "window": 4}
COMPOSITIONS = [
    *of_kind("update_rule"),
    *of_kind("mixer"),
    *of_kind("positions"),
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    {"timing": {"name": "synchronous", "window": None}},
    {"timing": {"name": "synchronous", "window": 20}, "layers": 4, "mixer": ["vector", "kv_only"]},
    {"timing": CHUNKS | {"hold": 39}, "mlp": "gelu", "bias": True, "norm": "layer", "head_norm": False},
    {"timing": CHUNKS, "update_rule": {"name": "delta_product", "steps": 3}, "short_conv": 4, "output_gate": True},
    {"timing": {"name": "delayed_stream", "window": 4, "gates": "travel"}, "mixer": "fw_only"},
    {"tie_embeddings": True, "update_rule": {"name": "linear_attention", "normaliser": "none"}},
]
BASE = {"vocabulary": 11, "width": 16, "heads": 2, "layers": 2, "mlp_width": 24}
LENGTH = 41


@pytest.fixture(params=COMPOSITIONS, ids=str)
def model(request):
    return build_model(**BASE | request.param)


def torch_counts():
    """FlopCounterMode that knows the lab's operators, the CPU's softmax, and that convolved channels are apart.

    Torch's own count of the gradient of a depthwise convolution's weight is too large by the number of channels.
    """
    teach_torch()
    aten = torch.ops.aten
    known = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda grad, q, k, v, *_, **__: (
            sdpa_backward_flop_count(grad, q, k, v)
        ),
        aten.convolution_backward: lambda grad, x, w, *_, **__: 2 * conv_flop_count(x, w, grad),
    }
    return FlopCounterMode(display=False, custom_mapping=known)


def test_a_model_computes_what_torch_counts(model):
    found, words = sizes(model, LENGTH), torch.randint(0, 11, (3, LENGTH))
    with torch_counts() as counts:
        logits, state = model(words)
        forward = counts.get_total_flops()
        logits.square().sum().backward()
    assert forward == 3 * found.total.forward
    # of a rule that is scanned by steps the first has one gradient less: that of a state from nothing
    steps = any(isinstance(memory.update_rule, StepRule) for memory in model.memories)
    assert counts.get_total_flops() == pytest.approx(3 * found.total.training, rel=1e-3 if steps else 0)
    with torch.no_grad(), torch_counts() as counts:
        model(words[:, :1], state)
    assert counts.get_total_flops() == 3 * found.total.decoding


def test_the_loss_in_chunks_counts_as_the_head_that_it_stands_for():
    model, words = build_model(**BASE), torch.randint(0, 11, (3, LENGTH))
    with torch_counts() as counts:
        losses, _ = model(words, labels=words)
        forward = counts.get_total_flops()
        losses.sum().backward()
    total = sizes(model, LENGTH).total
    assert (forward, counts.get_total_flops()) == (3 * total.forward, 3 * total.training)


def test_a_model_is_as_large_as_its_tensors(model):
    total = sizes(model, LENGTH).total
    _, state = model(torch.randint(0, 11, (1, LENGTH)))
    assert total.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert total.state == sum(tensor.nbytes for tensor in tensors(state))


def test_on_the_meta_device_everything_is_the_same(model):
    with torch.device("meta"):
        hollow = SequenceModel(model.config)
    assert sizes(hollow, LENGTH) == sizes(model, LENGTH)


class Bilinear(Mixer):
    """A part from outside, made of a bare parameter: y = fw W kv."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.between = nn.Parameter(torch.ones(width // heads, width // heads))

    def forward(self, x, fw, kv):
        return (fw @ self.between) * kv


class Learned(nn.Module):
    """A feature map from outside, applied to each query and key of each head."""

    unit = positive = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_features = nn.Linear(width // heads, width // heads)

    def forward(self, u):
        return self.to_features(u)


def test_parts_from_outside_are_counted_by_what_they_do():
    with lab.temporarily():
        lab.register("mixer", "bilinear")(Bilinear)
        lab.register("feature_map", "learned")(Learned)
        parts = {"mixer": "bilinear", "feature_map": "learned", "timing": {"name": "delayed_chunk", "window": 3}}
        found = sizes(SequenceModel(ModelConfig(**TINY, **parts)), 7)
    per_vector = 2 * 2 * 2
    assert found["mixer"] == flops("mixer", 4, 0, 2 * per_vector, 7)
    # two heads, a query and a key per token; decoding repeats the keys of the stretch of three
    forward = 2 * 2 * per_vector * 7
    assert found["feature_map"] == Size("feature_map", 6, 0, forward, 3 * forward, 2 * (1 + 3) * per_vector)


class Quadratic(UpdateRule):
    """A rule from outside that brings its scan: all pairs at once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_gate = nn.Linear(width, heads)

    def gates(self, x):
        return (self.to_gate(x).transpose(1, 2),)

    def scan(self, q, k, v, gates, state, course):
        return (q @ k.transpose(-1, -2)).tril() @ v, k.transpose(-1, -2) @ v


def test_a_scan_from_outside_is_counted_without_the_memory_that_it_takes():
    tokens, heads, channels = 2**18, 2, 2  # all pairs are half a terabyte
    with lab.temporarily(), torch.device("meta"):
        lab.register("update_rule", "quadratic")(Quadratic)
        found = sizes(SequenceModel(ModelConfig(**TINY, update_rule="quadratic")), tokens)
    assert found["fast_weights"].forward == 2 * heads * (2 * tokens * tokens * channels + tokens * channels * channels)


HYBRID = {"update_rule": {"name": "delta", "max_beta": 2}, "timing": {"name": "synchronous", "window": 64}}
TRANSFORMER = {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}, "head_norm": False}
PAPER = {
    "hybrid 340M": ({"width": 1024, "heads": 8} | HYBRID, 399_233_024),
    "hybrid 1B": ({"width": 2048, "heads": 16} | HYBRID, 1_465_750_528),
    "DeltaNet 1B": ({"width": 2048, "heads": 16, "mixer": "fw_only"}, 1_365_087_232),
    "Transformer++ 340M": ({"width": 1024, "heads": 16} | TRANSFORMER, 373_867_520),
}


@pytest.mark.parametrize(("settings", "parameters"), PAPER.values(), ids=PAPER)
def test_the_papers_models_take_six_flops_per_weight_and_token_and_those_of_their_memories(settings, parameters):
    with torch.device("meta"):
        found = sizes(SequenceModel(ModelConfig(vocabulary=32000, layers=24, **settings)), 2048)
    memories = found["softmax"].training + found["fast_weights"].training
    weights = parameters - found["embedding"].parameters - found["norms"].parameters
    assert found.total.parameters == parameters
    assert found.total.training == 6 * 2048 * weights + memories
    assert found.total.training / (6 * 2048 * parameters) == pytest.approx(1, abs=0.25)


def test_the_memories_of_the_papers_hybrid_are_what_is_counted_by_hand():
    with torch.device("meta"):
        found = sizes(SequenceModel(ModelConfig(vocabulary=32000, layers=24, width=1024, heads=8, **HYBRID)), 2048)
    layers_and_heads, d, s, chunks, later = 24 * 8, 128, 64, 2048 // 64, 2048 // 64 - 1
    softmax = 2 * chunks * s * (2 * s - 1) * (2 + 5) * d
    forward = 2 * (chunks * (5 * s * s * d + s * d * d) + later * 2 * s * d * d)
    backward = 2 * (chunks * 9 * s * s * d + later * 6 * s * d * d)
    assert found["softmax"].training == layers_and_heads * softmax
    assert found["fast_weights"].training == layers_and_heads * (forward + backward)
    assert found["softmax"].state == layers_and_heads * 2 * s * d * 4
    assert found["fast_weights"].state == layers_and_heads * d * d * 4
