"""Attention components equal their formulas, written out token by token, under every timing."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hqlt_lab.components._heads import split_heads
from hqlt_lab.components.attention._base import Attention
from hqlt_lab.model.analysis.layer_probes import probe
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.config import ModelConfig, OpsConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available

T, WIDTH, HEADS = 21, 8, 2
SIZE = WIDTH // HEADS
OPTIONS = [
    {},
    {"qk_norm": True},
    {"gate": "head"},
    {"gate": "channel"},
    {"logit_scale": "log_length"},
    {"qk_norm": True, "gate": "channel", "logit_scale": "log_length"},
]
TIMINGS = [{"name": "synchronous", "window": None}, *({"name": name, "window": 4} for name in available("timing"))]
SINKS = [timing | {"sinks": 2} for timing in TIMINGS]


def make_memory(**settings):
    defaults = {"width": WIDTH, "heads": HEADS, "init_std": 0.6, "positions": "none", "head_norm": False}
    config = ModelConfig(**defaults | {"mixer": "kv_only"} | settings)
    layer = HybridMemory(config)
    initialize_parameters(layer, config, 0)
    return layer.double()


def rms_norm(u, scale):
    return u / torch.sqrt((u * u).mean() + 1e-6) * scale


def reference_softmax(layer, x, options, forgets):
    """Return the output of softmax [T, width] for one sequence x [T, width], one query and one head at a time."""
    visible, attention, heads = layer.schedule.softmax_mask(len(x)), layer.attention, []
    for h in range(HEADS):
        rows = slice(h * SIZE, (h + 1) * SIZE)
        q, k, v = (x @ linear.weight[rows].T for linear in (layer.to_q, layer.to_k, layer.to_v))
        v, outputs = F.silu(v), []
        for t in range(len(x)):
            seen = [s for s in range(len(x)) if visible[t, s]]
            scores = []
            for s in seen:
                query, key = q[t], k[s]
                if options.get("qk_norm"):
                    query, key = (rms_norm(u, n.weight) for u, n in zip((query, key), attention.norms, strict=True))
                scale = math.log(len(seen)) if options.get("logit_scale") == "log_length" else 1
                score = scale * (query @ key) / math.sqrt(SIZE)
                if forgets:
                    logits = x[s + 1 : t + 1] @ attention.to_forget.weight[h] + attention.to_forget.bias[h]
                    score = score + torch.log(torch.sigmoid(logits)).sum()
                scores.append(score)
            output = torch.stack(scores).softmax(0) @ v[seen]
            if options.get("gate", "none") != "none":
                gate_rows = rows if options["gate"] == "channel" else slice(h, h + 1)
                output = output * torch.sigmoid(attention.to_gate.weight[gate_rows] @ x[t])
            outputs.append(output)
        heads.append(torch.stack(outputs))
    return torch.cat(heads, 1)


@pytest.mark.parametrize("timing", TIMINGS + SINKS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["softmax", "forgetting"])
def test_attention_equals_its_formula(name, options, timing):
    layer, x = make_memory(attention={"name": name, **options}, timing=timing), torch.randn(T, WIDTH).double()
    if name == "forgetting":
        torch.nn.init.normal_(layer.attention.to_forget.bias)
    expected = layer.to_out(reference_softmax(layer, x, options, name == "forgetting"))
    torch.testing.assert_close(layer(x[None])[0][0], expected)


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
def test_forgetting_with_open_gates_is_softmax(timing):
    forgetting, softmax = (make_memory(attention=name, timing=timing) for name in ("forgetting", "softmax"))
    forgetting.attention.to_forget.bias.data.fill_(1e3)
    x = torch.randn(2, 80, WIDTH).double()
    torch.testing.assert_close(forgetting(x)[0], softmax(x)[0])


def test_closed_gates_show_only_the_token_itself():
    layer, x = make_memory(attention="forgetting", timing=TIMINGS[0]), torch.randn(2, T, WIDTH).double()
    layer.attention.to_forget.bias.data.fill_(-1e3)
    torch.testing.assert_close(layer(x)[0], layer.to_out(F.silu(layer.to_v(x))))


def test_constant_forget_gates_are_alibi():
    layer, x = make_memory(attention="forgetting", timing=TIMINGS[0]), torch.randn(1, T, WIDTH).double()
    layer.attention.to_forget.weight.data.zero_()
    slopes = torch.tensor([0.5, 0.25]).double()  # f = exp(-slope)
    layer.attention.to_forget.bias.data = -torch.log(torch.expm1(slopes))
    q, k, v, _ = layer.project(x, None, None)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    scores = q @ k.mT / math.sqrt(SIZE) - slopes[:, None, None] * distance
    weights = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    expected = layer.to_out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x)[0], expected)


def test_softmax_without_options_has_no_parameters_and_is_the_default():
    assert list(make_memory(attention="softmax").attention.parameters()) == []
    assert type(make_memory().attention) is type(make_memory(attention="softmax").attention)
    assert make_memory(mixer="fw_only").attention is None


LENGTH = 6000


@pytest.mark.parametrize("timing", TIMINGS + SINKS, ids=str)
@pytest.mark.parametrize("bias", [-3.0, 0.0, 6.0])
@torch.no_grad()
def test_forget_gates_lose_no_precision_in_long_documents(timing, bias):
    """The sum of the log gates reaches -18,000: float32 has a step of 0.002 there, but the error is below 1e-5."""
    layer = make_memory(attention="forgetting", timing=timing)
    layer.attention.to_forget.bias.data.fill_(bias)
    x, queries = torch.randn(1, LENGTH, WIDTH).double(), slice(LENGTH - 50, LENGTH)
    q, k, v, _ = layer.project(x, None, None)
    decay = layer.attention.log_forget(x).cumsum(2)
    t = torch.arange(LENGTH)
    scores = q[:, :, queries] @ k.mT / math.sqrt(SIZE) + decay[:, :, queries, None] - decay[:, :, None]
    visible = layer.schedule.softmax_mask_at(t[queries, None], t)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    expected = layer.to_out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x)[0][:, queries], expected)
    torch.testing.assert_close(layer.float()(x.float())[0][:, queries].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_forget_gates_are_computed_in_float32_in_half_precision(dtype):
    layer = make_memory(attention="forgetting", timing=TIMINGS[0]).float()
    layer.attention.to_forget.bias.data.fill_(2.0)
    x = torch.randn(1, 500, WIDTH)
    expected, _ = layer(x)
    with torch.autocast("cpu", dtype):
        actual, _ = layer(x)
    torch.testing.assert_close(actual.float(), expected, atol=0.05, rtol=0.05)


def test_sums_of_forget_gates_restart_at_each_document():
    layer, x = make_memory(attention="forgetting", timing=TIMINGS[0]), torch.randn(1, 9, WIDTH).double()
    model = build_model(width=WIDTH, heads=HEADS, layers=1, attention="forgetting", timing=TIMINGS[0], mixer="kv_only")
    model.blocks[0].memory = layer
    starts = torch.zeros(1, 9, dtype=torch.bool)
    starts[0, 4] = True
    _, state = model.double()(x, layout=Layout(doc_start=starts))
    expected = layer.attention.log_forget(model.blocks[0].memory_norm(x))[:, :, 4:].cumsum(2)
    torch.testing.assert_close(state[0].attention.decay, expected)


class ValueGate(Attention):
    """Values are multiplied by a gate of their own token, which is cached with the key."""

    def __init__(self):
        super().__init__()
        self.to_gate = nn.Linear(WIDTH, HEADS, bias=False)

    def key_features(self, x):
        return split_heads(self.to_gate(x).sigmoid(), HEADS)

    def transform(self, x, inputs):
        return inputs._replace(v=inputs.v * inputs.features)


@pytest.mark.parametrize("timing", TIMINGS + SINKS, ids=str)
@torch.no_grad()
def test_cached_features_stay_with_their_keys(timing):
    model = build_model(width=WIDTH, heads=HEADS, layers=1, timing=timing, mixer="kv_only")
    layer, x = model.memories[0], torch.randn(2, T, WIDTH)
    layer.attention = ValueGate()
    nn.init.normal_(layer.attention.to_gate.weight)
    layer, x = layer.double(), x.double()
    first, state = layer(x[:, :9])
    second, state = layer(x[:, 9:13], state)
    torch.testing.assert_close(torch.cat([first, second, layer(x[:, 13:], state)[0]], 1), layer(x)[0])


@pytest.mark.parametrize("backend", ["sdpa", "blocks", "flex", "dense"])
@pytest.mark.parametrize("attention", available("attention"))
@pytest.mark.parametrize("timing", TIMINGS + SINKS, ids=str)
@torch.no_grad()
def test_every_backend_gives_the_same_output(timing, attention, backend):
    settings = {"width": 64, "heads": 2, "layers": 1, "attention": attention, "timing": timing}
    model, x = build_model(**settings).double(), torch.randn(2, 70, 64).double()
    starts = torch.zeros(2, 70, dtype=torch.bool)
    starts[0, [3, 40]] = starts[1, 9] = True
    outputs = []
    for name in ("dense", backend):
        model.set_backends(OpsConfig(attention=name))
        first, state = model(x[:, :50])
        packed, state = model(x, state, Layout(doc_start=starts))
        outputs.append(torch.cat([first, packed, model(x[:, :1], state)[0]], 1))
    torch.testing.assert_close(*outputs)


def test_probes_report_the_forget_gates_and_the_entropy_with_them():
    settings = {"width": WIDTH, "heads": HEADS, "layers": 1, "attention": "forgetting", "mixer": "kv_only"}
    model, x = build_model(timing=TIMINGS[0], **settings), torch.randn(2, 30, WIDTH)
    forget = model.memories[0].attention.to_forget
    forget.weight.data.zero_()
    forget.bias.data.fill_(0.0)
    assert probe(model, x)["forget"].tolist() == [[0.5, 0.5]]
    open_entropy = probe(model, x)["entropy"]
    forget.bias.data.fill_(-50.0)
    assert open_entropy.min() > 0.5 and probe(model, x)["entropy"].max() < 1e-6
