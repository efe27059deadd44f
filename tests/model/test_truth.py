"""The layer against the paper, written out: lists of keys and values, a matrix W, one token at a time.

Nothing of the lab's own scans, masks or caches is used here.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.memory import HybridMemory

WINDOW, WIDTH, HEADS = 4, 12, 3
SIZE = WIDTH // HEADS


def memory(**settings):
    words = {"width": WIDTH, "heads": HEADS, "init_std": 0.6, "positions": "none", "head_norm": False, **settings}
    config = ModelConfig(**words)
    layer = HybridMemory(config)
    initialise(layer, config, seed=3)
    return layer.double()


def phi(u):
    u = F.silu(u)
    return u / torch.sqrt((u * u).sum() + 1e-6)


def rotated(u, place):
    half = SIZE // 2
    out = u.clone()
    for i in range(half):
        angle = place * 10000 ** (-2 * i / SIZE)
        out[i] = u[i] * math.cos(angle) - u[i + half] * math.sin(angle)
        out[i + half] = u[i + half] * math.cos(angle) + u[i] * math.sin(angle)
    return out


def by_hand(layer, x, timing, rope, gates="current"):
    """y [T, width] of one sequence x [T, width], delta rule, vector mixer."""
    answers = []
    for h in range(HEADS):
        rows = slice(h * SIZE, (h + 1) * SIZE)
        q = x @ layer.to_q.weight[rows].T
        k = x @ layer.to_k.weight[rows].T
        v = F.silu(x @ layer.to_v.weight[rows].T)
        beta = 2 * torch.sigmoid(x @ layer.update_rule.to_beta.weight[h])
        gamma = torch.sigmoid(x @ layer.mixer.to_choice.weight[rows].T)
        turn = rotated if rope else (lambda u, place: u)
        W, kept, out = torch.zeros(SIZE, SIZE).double(), [], []
        for t in range(len(x)):
            if timing == "delayed_chunk" and t % WINDOW == 0:
                for s in kept:
                    W = W + beta[s] * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
                kept = []
            kept.append(t)
            if timing == "synchronous":
                W = W + beta[t] * torch.outer(v[t] - W @ phi(k[t]), phi(k[t]))
            if len(kept) > WINDOW:
                s = kept.pop(0)
                if timing == "delayed_stream":
                    strength = beta[t] if gates == "current" else beta[s]
                    W = W + strength * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
            scores = torch.stack([turn(q[t], t) @ turn(k[s], s) for s in kept]) / math.sqrt(SIZE)
            kv = torch.stack([v[s] for s in kept]).T @ scores.softmax(0)
            fw = W @ phi(q[t]) / math.sqrt(SIZE)
            out.append(gamma[t] * fw + (1 - gamma[t]) * kv)
        answers.append(torch.stack(out))
    return torch.cat(answers, -1) @ layer.to_out.weight.T


@pytest.mark.parametrize("positions", ["none", "rope"])
@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_the_layer_is_the_paper(timing, positions):
    layer = memory(
        timing={"name": timing, "window": WINDOW}, positions=positions, update_rule={"name": "delta", "max_beta": 2}
    )
    x = torch.randn(2, 15, WIDTH, dtype=torch.float64)
    y, _ = layer(x)
    for row in range(2):
        torch.testing.assert_close(y[row], by_hand(layer, x[row], timing, positions == "rope"))


def test_gates_that_travel_come_with_their_pair():
    timing = {"name": "delayed_stream", "window": WINDOW, "gates": "travel"}
    layer = memory(timing=timing, update_rule={"name": "delta", "max_beta": 2})
    x = torch.randn(1, 15, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0][0], by_hand(layer, x[0], "delayed_stream", False, "travel"))
    current = memory(timing={"name": "delayed_stream", "window": WINDOW}, update_rule={"name": "delta", "max_beta": 2})
    assert not torch.allclose(current(x)[0], layer(x)[0])


def test_linear_attention_with_its_normaliser_is_attention_without_softmax():
    layer = memory(update_rule="linear_attention", mixer="fw_only")
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    q, k, v = (
        u.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for u in (layer.to_q(x), layer.to_k(x), F.silu(layer.to_v(x)))
    )
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
    want = (scores / scores.sum(-1, keepdim=True)) @ v
    torch.testing.assert_close(layer(x)[0], layer.to_out(want.transpose(1, 2).flatten(2)))


def test_the_mistaken_normaliser_sums_over_heads():
    layer = memory(update_rule={"name": "linear_attention", "normaliser": "heads"}, mixer="fw_only")
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    q, k, v = (
        u.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for u in (layer.to_q(x), layer.to_k(x), F.silu(layer.to_v(x)))
    )
    q, k = (F.elu(q) + 1) / 2, F.elu(k) + 1
    divisor = torch.stack([(q[:, h] * k[:, : h + 1].sum(1)).sum(-1) for h in range(HEADS)], 1)
    want = ((q @ k.mT).tril() @ v) / divisor[..., None]
    torch.testing.assert_close(layer(x)[0], layer.to_out(want.transpose(1, 2).flatten(2)))
