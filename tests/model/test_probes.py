"""Probes report correct values: compared with the layer written out, hand-made cases, and every component."""

import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.component_under_test import fixed_noise, small_spec
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.model.analysis.layer_probes import probe, state_quantities
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.registry import available, register
from tests.model.test_reference import phi, rotate

WIDTH, HEADS, WINDOW = 12, 3, 4
SIZE = WIDTH // HEADS
PER_TOKEN = ("gate_fw", "gate_kv", "norm_fw", "norm_kv", "work_fw", "work_kv", "erase", "write", "keep", "entropy")


def make_model(seed=1, **settings):
    defaults = {"width": WIDTH, "heads": HEADS, "layers": 1, "mlp_width": 8, "init_std": 0.6}
    return lab.build_model(seed, **defaults | settings).double()


@torch.no_grad()
def reference_quantities(model, inputs, timing):
    """Compute every quantity of a layer with delta, vector and rope, one token and one head at a time."""
    block = model.blocks[0]
    layer, x = block.memory, block.memory_norm(inputs)
    quantities = {}
    for h in range(HEADS):
        rows = slice(h * SIZE, (h + 1) * SIZE)
        q, k = x @ layer.to_q.weight[rows].T, x @ layer.to_k.weight[rows].T
        v = torch.nn.functional.silu(x @ layer.to_v.weight[rows].T)
        beta = 2 * torch.sigmoid(x @ layer.update_rule.to_beta.weight[h])
        gamma = torch.sigmoid(x @ layer.mixer.to_choice.weight[rows].T)
        W, token_values = torch.zeros(SIZE, SIZE).double(), {name: [] for name in PER_TOKEN}
        for t in range(len(x)):
            s = t if timing == "synchronous" else t - WINDOW
            if s >= 0:
                W = W + beta[t] * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
            window = range(max(t - WINDOW + 1, 0), t + 1)
            scores = torch.stack([rotate(q[t], t) @ rotate(k[s], s) for s in window]) / math.sqrt(SIZE)
            kv, fw = torch.stack([v[s] for s in window]).T @ scores.softmax(0), W @ phi(q[t]) / math.sqrt(SIZE)
            token_values["entropy"].append(-sum(p * math.log(p) for p in scores.softmax(0).tolist()))
            token_values["gate_fw"].append(gamma[t].mean())
            token_values["gate_kv"].append(1 - gamma[t].mean())
            token_values["norm_fw"].append(fw.norm())
            token_values["norm_kv"].append(kv.norm())
            token_values["work_fw"].append((gamma[t] * fw).norm())
            token_values["work_kv"].append(((1 - gamma[t]) * kv).norm())
            token_values["erase"].append(beta[t])
            token_values["write"].append(beta[t])
        for name, values in token_values.items():
            if values:
                quantities.setdefault(name, []).append(float(sum(values)) / len(x))
        p = torch.linalg.svdvals(W) / torch.linalg.svdvals(W).sum()
        quantities.setdefault("state_rank", []).append(math.exp(-sum(value * math.log(value) for value in p.tolist())))
        quantities.setdefault("state_norm", []).append(float((W * W).sum().sqrt()))
    quantities["share"] = [fw / (fw + kv) for fw, kv in zip(quantities["work_fw"], quantities["work_kv"], strict=True)]
    return quantities


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream"])
def test_quantities_equal_those_of_the_layer_written_out(timing):
    rule = {"name": "delta", "max_beta": 2}
    model = make_model(update_rule=rule, timing={"name": timing, "window": WINDOW}, mixer="vector", positions="rope")
    inputs = fixed_noise(1, 15, WIDTH)
    expected = reference_quantities(model, inputs[0], timing)
    probes = probe(model, inputs)
    assert set(probes.names) == set(expected)
    for name, values in expected.items():
        torch.testing.assert_close(probes[name][0].double(), torch.tensor(values).double(), rtol=1e-5, atol=1e-6)


def test_memory_of_r_orthonormal_pairs_has_rank_r():
    keys, values = (torch.linalg.qr(fixed_noise(6, 6, seed=seed)).Q for seed in (1, 2))
    for r in (1, 2, 6):
        quantities = state_quantities((keys[:r].T @ values[:r])[None, None], torch.tensor([True]))
        assert math.isclose(quantities["state_rank"].item(), r, rel_tol=1e-6)
        assert math.isclose(quantities["state_norm"].item(), math.sqrt(r), rel_tol=1e-6)


def test_empty_and_non_finite_memories_have_no_rank_and_do_not_affect_others():
    state = torch.stack([torch.zeros(3, 3), torch.full((3, 3), torch.inf), torch.eye(3)])[:, None]
    assert math.isclose(state_quantities(state, torch.ones(3).bool())["state_rank"].item(), 3, rel_tol=1e-6)
    assert state_quantities(state[:1], torch.ones(1).bool())["state_rank"].isnan().all()


@pytest.mark.parametrize(("timing", "window_size"), [("synchronous", 5), ("delayed_chunk", 5)])
def test_uniform_attention_has_the_entropy_of_its_visible_tokens(timing, window_size):
    model = make_model(timing={"name": timing, "window": window_size}, positions="none")
    with torch.no_grad():
        model.memories[0].to_k.weight.zero_()
    visible = [min(t + 1, window_size) if timing == "synchronous" else t % window_size + 1 for t in range(150)]
    expected = sum(map(math.log, visible)) / 150
    torch.testing.assert_close(probe(model, fixed_noise(2, 150, WIDTH))["entropy"], torch.full((1, HEADS), expected))


def test_entropy_of_a_long_sequence_uses_the_last_queries():
    model = make_model(timing={"name": "synchronous", "window": None}, positions="none")
    with torch.no_grad():
        model.memories[0].to_k.weight.zero_()
    expected = sum(map(math.log, range(45, 301))) / 256
    torch.testing.assert_close(probe(model, fixed_noise(1, 300, WIDTH))["entropy"], torch.full((1, HEADS), expected))


def compositions():
    for rule in available("update_rule"):
        yield {"update_rule": small_spec("update_rule", rule), "timing": small_spec("timing", "delayed_chunk")}
    for mixer in available("mixer"):
        yield {"mixer": mixer, "timing": small_spec("timing", "delayed_stream")}
    for timing in available("timing"):
        yield {"timing": small_spec("timing", timing), "positions": "rope", "short_conv": 2}
    yield {"layers": 3, "mixer": ["vector", "fw_only", "kv_only"], "timing": small_spec("timing", "synchronous")}


@pytest.mark.parametrize("settings", list(compositions()), ids=str)
def test_padding_and_packing_do_not_change_the_probes(settings):
    model, rows = make_model(**settings), fixed_noise(2, 11, WIDTH)
    valid_mask = torch.ones(2, 11, dtype=torch.bool)
    valid_mask[0, [0, 4, 5]] = valid_mask[1, 9:] = False
    probes = probe(model, rows.masked_fill(~valid_mask[..., None], torch.nan), lab.Layout(valid_mask=valid_mask))
    separate = [probe(model, rows[row : row + 1, valid_mask[row]]) for row in range(2)]
    assert all(probes.names == row_probes.names for row_probes in separate)
    for name in set(probes.names) & {*PER_TOKEN, "state_norm"}:
        weights = valid_mask.sum(1) if name in PER_TOKEN else torch.ones(2)
        total = sum(weight * row_probes[name] for weight, row_probes in zip(weights, separate, strict=True))
        expected = total / weights.sum()
        torch.testing.assert_close(probes[name], expected, equal_nan=True)
    doc_start = torch.zeros(1, 19, dtype=torch.bool)
    doc_start[0, [0, 8]] = True
    packed = torch.cat([rows[0, valid_mask[0]], rows[0]])[None]
    last_document, packed_probes = probe(model, rows[:1]), probe(model, packed, lab.Layout(doc_start=doc_start))
    for name in set(probes.names) & {*PER_TOKEN, "state_norm"}:
        expected = (8 * separate[0][name] + 11 * last_document[name]) / 19 if name in PER_TOKEN else last_document[name]
        torch.testing.assert_close(packed_probes[name], expected, equal_nan=True)


def test_layer_has_the_quantities_of_its_components():
    settings = {"layers": 4, "mixer": ["sum", "fw_only", "kv_only", "vector"]}
    rules = ["delta", "tanh_delta", "delta", "linear_attention"]
    probes = probe(make_model(**settings, update_rule=rules), fixed_noise(1, 9, WIDTH))
    for name, is_present in {
        "norm_fw": [1, 1, 0, 1], "norm_kv": [1, 0, 1, 1], "entropy": [1, 0, 1, 1], "state_rank": [1, 1, 0, 1],
        "erase": [1, 0, 0, 0], "beta": [0, 1, 0, 0], "share": [1, 1, 1, 1],
    }.items():  # fmt: skip
        assert (~probes[name].isnan()).all(1).int().tolist() == is_present, name
    assert probes["share"][1:3].tolist() == [[1.0] * HEADS, [0.0] * HEADS]
    with pytest.raises(KeyError, match=r"No layer has 'keep'. Recorded: norm_fw"):
        probes["keep"]


def test_mixer_without_weights_has_all_quantities_but_gates():
    with lab.temporary_components():

        @register("mixer", "product")
        class Product(Mixer):
            def forward(self, x, fw, kv):
                return fw * kv

        probes = probe(make_model(mixer="product"), fixed_noise(1, 9, WIDTH))
    assert {"norm_fw", "norm_kv", "state_rank", "entropy"} < set(probes.names)
    assert not {"gate_fw", "work_fw", "share"} & set(probes.names)


def test_share_of_normalized_memories_is_that_of_their_scales():
    model = make_model(mixer="normalized", timing={"name": "synchronous", "window": 3})
    with torch.no_grad():
        model.memories[0].mixer.norms["fw"].weight.fill_(3)
    probes, inputs = probe(model, fixed_noise(1, 9, WIDTH)), fixed_noise(1, 9, WIDTH)
    norms = dict.fromkeys(("fw", "kv"), 0)
    handle = model.memories[0].mixer.register_forward_pre_hook(lambda _, args: norms.update(fw=args[1], kv=args[2]))
    model(inputs)
    handle.remove()
    for name, scale in (("fw", 3), ("kv", 1)):
        rms = norms[name].square().mean((1, 3), keepdim=True).sqrt()
        expected = (scale * norms[name] / rms).norm(dim=-1).mean((0, 2))
        torch.testing.assert_close(probes[f"work_{name}"][0].double(), expected, rtol=1e-3, atol=1e-3)
    assert "gate_fw" not in probes.names and (probes["share"] > 0.5).all()


def test_probe_does_not_change_the_model():
    model, inputs = make_model(layers=2), fixed_noise(1, 9, WIDTH)
    model.train()
    model.blocks[1].eval()
    output, rng_state = model(inputs)[0], torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    probe(model, inputs)
    assert torch.equal(model(inputs)[0], output) and torch.equal(torch.get_rng_state(), rng_state)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_model_is_probed_eagerly_and_stays_compiled(in_place):
    model, inputs = make_model(), fixed_noise(1, 9, WIDTH)
    expected = probe(model, inputs)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = model if in_place else torch.compile(model, backend=backend)
    if in_place:
        model.compile(backend=backend)
    output = compiled(inputs)[0]
    num_graphs = len(graphs)
    assert probe(compiled, inputs) == expected
    assert torch.equal(compiled(inputs)[0], output) and num_graphs == len(graphs) > 0
    torch.compiler.reset()


def test_quantities_are_measured_in_full_precision_under_autocast():
    model, inputs = make_model(update_rule="gated_delta").float(), fixed_noise(4, 40, WIDTH).float()
    expected = probe(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        probes = probe(model, inputs)
    assert probes.names == expected.names
    for name in expected.names:
        torch.testing.assert_close(probes[name], expected[name], rtol=0.05, atol=0.02)


def test_probe_rejects_other_modules():
    layer = HybridMemory(ModelConfig(width=8, heads=2))
    with pytest.raises(ValueError, match="a model from build_model or load is needed, got HybridMemory"):
        probe(layer, torch.zeros(1, 3, 8))


def test_a_layer_without_memories_has_no_quantities():
    model = make_model(layers=4, layer_kind=["gated_conv", "memory"])
    layers = probe(model, fixed_noise(2, 9, WIDTH)).layers
    assert [bool(layer) for layer in layers] == [False, True, False, True]
