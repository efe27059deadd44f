"""FLOPs of the scans, by torch's count of the algorithm written out plainly."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import hqlt_lab as lab
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.chunked import CHUNK
from hqlt_lab.ops.flops import chunks_of
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.steps import PLAIN


def plain(q, k, v, gates, writes):
    """The chunk-parallel scan as the paper writes it, one chunk after the other."""
    tokens = q.shape[2]
    chunks, size = chunks_of(tokens, writes, CHUNK)
    zeros = k.new_zeros(k.shape[:3])
    log_keep, erase, write = (zeros if gate is None else gate for gate in gates)
    v = v if gates.write is None else v * write[..., None]

    def pieces(u, length):
        return filled(u, length * chunks).unflatten(2, (chunks, length)).unbind(2)

    state, reads = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    of_writes = [pieces(u, size * writes) for u in (k, v, log_keep, erase)]
    for q_n, k_n, u, fade, epsilon in zip(pieces(q, size), *of_writes, strict=True):
        fade = fade.cumsum(-1)
        left = (fade[..., :, None] - fade[..., None, :]).tril().exp().tril()
        if gates.erase is not None:
            system = torch.eye(size * writes, dtype=k.dtype) + (epsilon[..., None] * (k_n @ k_n.mT) * left).tril(-1)
            inverse = torch.linalg.solve_triangular(system, torch.eye(size * writes, dtype=k.dtype), upper=False)
            weights = (epsilon * fade.exp())[..., None] * k_n
            u, weights = (inverse @ torch.cat([u, weights], -1)).split([u.shape[-1], k_n.shape[-1]], -1)
            u = u - weights @ state
        last = slice(writes - 1, None, writes)  # a token reads after its last write
        reads.append(fade[:, :, last].exp()[..., None] * (q_n @ state) + (q_n @ k_n.mT * left[:, :, last]) @ u)
        state = fade[..., -1:, None].exp() * state + (k_n * (fade[..., -1:] - fade).exp()[..., None]).mT @ u
    return torch.cat(reads, 2)[:, :, :tokens]


def filled(u, length):
    return torch.cat([u, u.new_zeros(*u.shape[:2], length - u.shape[2], *u.shape[3:])], 2)


def example(rule, tokens, key=8):
    x = torch.randn(2, tokens, 16).double()
    q, k, v = (torch.randn(2, 2, tokens * writes, key).double() for writes in (1, rule.writes, rule.writes))
    return q, k / k.norm(dim=-1, keepdim=True), v, rule.double().gates(x)


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


RULES = {name: lab.build("update_rule", name, width=16, heads=2) for name in lab.available("update_rule")}
LINEAR = [name for name, rule in RULES.items() if isinstance(rule, LinearRule)]
TOKENS = pytest.mark.parametrize("tokens", [1, 5, CHUNK, 2 * CHUNK + 7])


@TOKENS
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_rule_computes_what_torch_counts_of_the_plain_algorithm(name, tokens):
    rule = RULES[name]
    q, k, v, gates = example(rule, tokens)
    scanned = rule.with_count(v) if name == "linear_attention" else v
    torch.testing.assert_close(plain(q, k, scanned, gates, rule.writes), recurrent(q, k, scanned, gates)[0])
    assert rule.flops(q, k, v, gates).forward == counted(lambda: plain(q, k, scanned, gates, rule.writes))


@pytest.mark.parametrize("name", LINEAR)
def test_the_gradients_of_a_linear_rule_take_about_twice_what_its_scan_does(name):
    rule = RULES[name]
    q, k, v, gates = example(rule, 8 * CHUNK, key=64)
    inputs = [u.requires_grad_() for u in (q, k, rule.with_count(v) if name == "linear_attention" else v)]
    reads = plain(*inputs, gates, rule.writes)
    assert rule.flops(q, k, v, gates).backward == pytest.approx(counted(reads.sum().backward), rel=0.15)


@TOKENS
@pytest.mark.parametrize("name", sorted(set(RULES) - set(LINEAR)))
def test_another_rule_computes_what_torch_counts_of_its_scan(name, tokens):
    rule = RULES[name]
    q, k, v, gates = example(rule, tokens)
    assert rule.flops(q, k, v, gates).forward == counted(lambda: rule.scan(q, k, v, gates, None, PLAIN)) > 0
