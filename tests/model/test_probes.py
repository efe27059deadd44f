"""What the probes say is what is true: against the layer written out, hand-made cases, and every part there is."""

import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.subject import noise, small
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.probes import of_state, probe
from hqlt_lab.registry import available, register
from tests.model.test_truth import phi, rotated

WIDTH, HEADS, WINDOW = 12, 3, 4
SIZE = WIDTH // HEADS
PER_TOKEN = ("gate_fw", "gate_kv", "norm_fw", "norm_kv", "work_fw", "work_kv", "erase", "write", "keep", "entropy")


def model_of(seed=1, **settings):
    words = {"width": WIDTH, "heads": HEADS, "layers": 1, "mlp_width": 8, "init_std": 0.6, **settings}
    return lab.build_model(seed, **words).double()


@torch.no_grad()
def by_hand(model, text, timing):
    """Every quantity of a layer of delta, vector and rope, one token and one head at a time."""
    block = model.blocks[0]
    layer, x = block.memory, block.memory_norm(text)
    found = {}
    for h in range(HEADS):
        rows = slice(h * SIZE, (h + 1) * SIZE)
        q, k = x @ layer.to_q.weight[rows].T, x @ layer.to_k.weight[rows].T
        v = torch.nn.functional.silu(x @ layer.to_v.weight[rows].T)
        beta = 2 * torch.sigmoid(x @ layer.update_rule.to_beta.weight[h])
        gamma = torch.sigmoid(x @ layer.mixer.to_choice.weight[rows].T)
        W, seen = torch.zeros(SIZE, SIZE).double(), {name: [] for name in PER_TOKEN}
        for t in range(len(x)):
            s = t if timing == "synchronous" else t - WINDOW
            if s >= 0:
                W = W + beta[t] * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
            window = range(max(t - WINDOW + 1, 0), t + 1)
            scores = torch.stack([rotated(q[t], t) @ rotated(k[s], s) for s in window]) / math.sqrt(SIZE)
            kv, fw = torch.stack([v[s] for s in window]).T @ scores.softmax(0), W @ phi(q[t]) / math.sqrt(SIZE)
            seen["entropy"].append(-sum(p * math.log(p) for p in scores.softmax(0).tolist()))
            seen["gate_fw"].append(gamma[t].mean())
            seen["gate_kv"].append(1 - gamma[t].mean())
            seen["norm_fw"].append(fw.norm())
            seen["norm_kv"].append(kv.norm())
            seen["work_fw"].append((gamma[t] * fw).norm())
            seen["work_kv"].append(((1 - gamma[t]) * kv).norm())
            seen["erase"].append(beta[t])
            seen["write"].append(beta[t])
        for name, values in seen.items():
            if values:
                found.setdefault(name, []).append(float(sum(values)) / len(x))
        p = torch.linalg.svdvals(W) / torch.linalg.svdvals(W).sum()
        found.setdefault("state_rank", []).append(math.exp(-sum(one * math.log(one) for one in p.tolist())))
        found.setdefault("state_norm", []).append(float((W * W).sum().sqrt()))
    found["share"] = [fw / (fw + kv) for fw, kv in zip(found["work_fw"], found["work_kv"], strict=True)]
    return found


@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream"])
def test_every_quantity_is_that_of_the_layer_written_out(timing):
    rule = {"name": "delta", "max_beta": 2}
    model = model_of(update_rule=rule, timing={"name": timing, "window": WINDOW}, mixer="vector", positions="rope")
    text = noise(1, 15, WIDTH)
    want = by_hand(model, text[0], timing)
    seen = probe(model, text)
    assert set(seen.names) == set(want)
    for name, values in want.items():
        torch.testing.assert_close(seen[name][0].double(), torch.tensor(values).double(), rtol=1e-5, atol=1e-6)


def test_a_memory_of_r_orthonormal_pairs_has_rank_r():
    keys, values = (torch.linalg.qr(noise(6, 6, seed=seed)).Q for seed in (1, 2))
    for r in (1, 2, 6):
        found = of_state((keys[:r].T @ values[:r])[None, None], torch.tensor([True]))
        assert math.isclose(found["state_rank"].item(), r, rel_tol=1e-6)
        assert math.isclose(found["state_norm"].item(), math.sqrt(r), rel_tol=1e-6)


def test_an_empty_memory_and_one_that_is_no_number_have_no_rank_and_do_not_disturb_the_others():
    state = torch.stack([torch.zeros(3, 3), torch.full((3, 3), torch.inf), torch.eye(3)])[:, None]
    assert math.isclose(of_state(state, torch.ones(3).bool())["state_rank"].item(), 3, rel_tol=1e-6)
    assert of_state(state[:1], torch.ones(1).bool())["state_rank"].isnan().all()


@pytest.mark.parametrize(("timing", "sees"), [("synchronous", 5), ("delayed_chunk", 5)])
def test_attention_that_looks_everywhere_has_the_entropy_of_what_it_sees(timing, sees):
    model = model_of(timing={"name": timing, "window": sees}, positions="none")
    with torch.no_grad():
        model.memories[0].to_k.weight.zero_()
    visible = [min(t + 1, sees) if timing == "synchronous" else t % sees + 1 for t in range(150)]
    want = sum(map(math.log, visible)) / 150
    torch.testing.assert_close(probe(model, noise(2, 150, WIDTH))["entropy"], torch.full((1, HEADS), want))


def test_of_a_long_text_the_last_queries_are_looked_at():
    model = model_of(timing={"name": "synchronous", "window": None}, positions="none")
    with torch.no_grad():
        model.memories[0].to_k.weight.zero_()
    want = sum(map(math.log, range(45, 301))) / 256
    torch.testing.assert_close(probe(model, noise(1, 300, WIDTH))["entropy"], torch.full((1, HEADS), want))


def compositions():
    for rule in available("update_rule"):
        yield {"update_rule": small("update_rule", rule), "timing": small("timing", "delayed_chunk")}
    for mixer in available("mixer"):
        yield {"mixer": mixer, "timing": small("timing", "delayed_stream")}
    for timing in available("timing"):
        yield {"timing": small("timing", timing), "positions": "rope", "short_conv": 2}
    yield {"layers": 3, "mixer": ["vector", "fw_only", "kv_only"], "timing": small("timing", "synchronous")}


@pytest.mark.parametrize("settings", list(compositions()), ids=str)
def test_padding_and_packing_change_nothing_in_any_composition(settings):
    model, rows = model_of(**settings), noise(2, 11, WIDTH)
    real = torch.ones(2, 11, dtype=torch.bool)
    real[0, [0, 4, 5]] = real[1, 9:] = False
    seen = probe(model, rows.masked_fill(~real[..., None], torch.nan), lab.Layout(real=real))
    alone = [probe(model, rows[row : row + 1, real[row]]) for row in range(2)]
    assert all(seen.names == one.names for one in alone)
    for name in set(seen.names) & {*PER_TOKEN, "state_norm"}:
        tokens = real.sum(1) if name in PER_TOKEN else torch.ones(2)
        want = sum(n * one[name] for n, one in zip(tokens, alone, strict=True)) / tokens.sum()
        torch.testing.assert_close(seen[name], want, equal_nan=True)
    starts = torch.zeros(1, 19, dtype=torch.bool)
    starts[0, [0, 8]] = True
    packed = torch.cat([rows[0, real[0]], rows[0]])[None]
    last, both = probe(model, rows[:1]), probe(model, packed, lab.Layout(starts=starts))
    for name in set(seen.names) & {*PER_TOKEN, "state_norm"}:
        want = (8 * alone[0][name] + 11 * last[name]) / 19 if name in PER_TOKEN else last[name]
        torch.testing.assert_close(both[name], want, equal_nan=True)


def test_a_layer_has_what_its_parts_have():
    settings = {"layers": 4, "mixer": ["sum", "fw_only", "kv_only", "vector"]}
    rules = ["delta", "bounded_delta", "delta", "linear_attention"]
    seen = probe(model_of(**settings, update_rule=rules), noise(1, 9, WIDTH))
    for name, there in {
        "norm_fw": [1, 1, 0, 1], "norm_kv": [1, 0, 1, 1], "entropy": [1, 0, 1, 1], "state_rank": [1, 1, 0, 1],
        "erase": [1, 0, 0, 0], "beta": [0, 1, 0, 0], "share": [1, 1, 1, 1],
    }.items():  # fmt: skip
        assert (~seen[name].isnan()).all(1).int().tolist() == there, name
    assert seen["share"][1:3].tolist() == [[1.0] * HEADS, [0.0] * HEADS]
    with pytest.raises(KeyError, match=r"No layer has 'keep'. Seen: norm_fw"):
        seen["keep"]


def test_a_mixer_without_weights_has_no_gates_and_all_else():
    with lab.temporarily():

        @register("mixer", "product")
        class Product(Mixer):
            def forward(self, x, fw, kv):
                return fw * kv

        seen = probe(model_of(mixer="product"), noise(1, 9, WIDTH))
    assert {"norm_fw", "norm_kv", "state_rank", "entropy"} < set(seen.names)
    assert not {"gate_fw", "work_fw", "share"} & set(seen.names)


def test_a_probe_leaves_no_trace():
    model, text = model_of(layers=2), noise(1, 9, WIDTH)
    model.train()
    model.blocks[1].eval()
    before, generator, modes = model(text)[0], torch.get_rng_state(), [one.training for one in model.modules()]
    probe(model, text)
    assert torch.equal(model(text)[0], before) and torch.equal(torch.get_rng_state(), generator)
    assert [one.training for one in model.modules()] == modes
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_is_probed_as_it_is_written_and_stays_compiled(in_place):
    model, text = model_of(), noise(1, 9, WIDTH)
    want = probe(model, text)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = model if in_place else torch.compile(model, backend=backend)
    if in_place:
        model.compile(backend=backend)
    answer = compiled(text)[0]
    count = len(graphs)
    assert probe(compiled, text) == want
    assert torch.equal(compiled(text)[0], answer) and count == len(graphs) > 0
    torch.compiler.reset()


def test_under_autocast_it_is_measured_in_full_precision():
    model, text = model_of(update_rule="gated_delta").float(), noise(4, 40, WIDTH).float()
    want = probe(model, text)
    with torch.autocast("cpu", torch.bfloat16):
        seen = probe(model, text)
    assert seen.names == want.names
    for name in want.names:
        torch.testing.assert_close(seen[name], want[name], rtol=0.05, atol=0.02)


def test_only_a_model_of_the_lab_can_be_probed():
    layer = HybridMemory(ModelConfig(width=8, heads=2))
    with pytest.raises(ValueError, match="one that build_model or load gave is needed, got HybridMemory"):
        probe(layer, torch.zeros(1, 3, 8))
