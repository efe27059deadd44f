"""The layer equals the equations of the paper, written out: lists of keys and values, a matrix W, token by token.

None of our scans, masks or caches is used here.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.initialize import initialize_parameters

WINDOW, WIDTH, HEADS = 4, 12, 3
SIZE = WIDTH // HEADS


def make_memory(**settings):
    defaults = {"width": WIDTH, "heads": HEADS, "init_std": 0.6, "positions": "none", "head_norm": False}
    config = ModelConfig(**defaults | settings)
    layer = HybridMemory(config)
    initialize_parameters(layer, config, seed=3)
    return layer.double()


def phi(u):
    u = F.silu(u)
    return u / torch.sqrt((u * u).sum() + 1e-6)


def rotate(u, position):
    half = SIZE // 2
    rotated = u.clone()
    for i in range(half):
        angle = position * 10000 ** (-2 * i / SIZE)
        rotated[i] = u[i] * math.cos(angle) - u[i + half] * math.sin(angle)
        rotated[i + half] = u[i + half] * math.cos(angle) + u[i] * math.sin(angle)
    return rotated


def reference_layer(layer, x, timing, rope, gates="current"):
    """Return y [T, width] for one sequence x [T, width], with delta rule and vector mixer."""
    head_outputs = []
    for h in range(HEADS):
        rows = slice(h * SIZE, (h + 1) * SIZE)
        q = x @ layer.to_q.weight[rows].T
        k = x @ layer.to_k.weight[rows].T
        v = F.silu(x @ layer.to_v.weight[rows].T)
        beta = 2 * torch.sigmoid(x @ layer.update_rule.to_beta.weight[h])
        gamma = torch.sigmoid(x @ layer.mixer.to_choice.weight[rows].T)
        apply_positions = rotate if rope else (lambda u, position: u)
        W, window_tokens, outputs = torch.zeros(SIZE, SIZE).double(), [], []
        for t in range(len(x)):
            if timing == "delayed_chunk" and t % WINDOW == 0:
                for s in window_tokens:
                    W = W + beta[s] * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
                window_tokens = []
            window_tokens.append(t)
            if timing == "synchronous":
                W = W + beta[t] * torch.outer(v[t] - W @ phi(k[t]), phi(k[t]))
            if len(window_tokens) > WINDOW:
                s = window_tokens.pop(0)
                if timing == "delayed_stream":
                    strength = beta[t] if gates == "current" else beta[s]
                    W = W + strength * torch.outer(v[s] - W @ phi(k[s]), phi(k[s]))
            products = [apply_positions(q[t], t) @ apply_positions(k[s], s) for s in window_tokens]
            scores = torch.stack(products) / math.sqrt(SIZE)
            kv = torch.stack([v[s] for s in window_tokens]).T @ scores.softmax(0)
            fw = W @ phi(q[t]) / math.sqrt(SIZE)
            outputs.append(gamma[t] * fw + (1 - gamma[t]) * kv)
        head_outputs.append(torch.stack(outputs))
    return torch.cat(head_outputs, -1) @ layer.to_out.weight.T


@pytest.mark.parametrize("positions", ["none", "rope"])
@pytest.mark.parametrize("timing", ["synchronous", "delayed_stream", "delayed_chunk"])
def test_layer_equals_the_equations_of_the_paper(timing, positions):
    layer = make_memory(
        timing={"name": timing, "window": WINDOW}, positions=positions, update_rule={"name": "delta", "max_beta": 2}
    )
    x = torch.randn(2, 15, WIDTH, dtype=torch.float64)
    y, _ = layer(x)
    for row in range(2):
        torch.testing.assert_close(y[row], reference_layer(layer, x[row], timing, positions == "rope"))


def test_own_gates_are_those_of_the_written_pair():
    timing = {"name": "delayed_stream", "window": WINDOW, "gates": "own"}
    layer = make_memory(timing=timing, update_rule={"name": "delta", "max_beta": 2})
    x = torch.randn(1, 15, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0][0], reference_layer(layer, x[0], "delayed_stream", False, "own"))
    current = make_memory(
        timing={"name": "delayed_stream", "window": WINDOW}, update_rule={"name": "delta", "max_beta": 2}
    )
    assert not torch.allclose(current(x)[0], layer(x)[0])


def test_linear_attention_with_normalizer_is_attention_without_softmax():
    layer = make_memory(update_rule="linear_attention", mixer="fw_only")
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    q, k, v = (
        u.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for u in (layer.to_q(x), layer.to_k(x), F.silu(layer.to_v(x)))
    )
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
    expected = (scores / scores.sum(-1, keepdim=True)) @ v
    torch.testing.assert_close(layer(x)[0], layer.to_out(expected.transpose(1, 2).flatten(2)))


def test_normalizer_heads_sums_over_heads():
    layer = make_memory(update_rule={"name": "linear_attention", "normalizer": "heads"}, mixer="fw_only")
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    q, k, v = (
        u.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for u in (layer.to_q(x), layer.to_k(x), F.silu(layer.to_v(x)))
    )
    q, k = (F.elu(q) + 1) / 2, F.elu(k) + 1
    divisor = torch.stack([(q[:, h] * k[:, : h + 1].sum(1)).sum(-1) for h in range(HEADS)], 1)
    expected = ((q @ k.mT).tril() @ v) / divisor[..., None]
    torch.testing.assert_close(layer(x)[0], layer.to_out(expected.transpose(1, 2).flatten(2)))
