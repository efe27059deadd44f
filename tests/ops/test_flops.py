"""FLOPs of the scans equal torch's count of their matrix products."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, bmm_flop

import hqlt_lab as lab
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.gates import DEFAULT_CONTEXT, ScanContext, broadcast_gate, fill_last_values
from hqlt_lab.ops.scan.channel_gate_scan import channel_gate_scan_backward_op, channel_gate_scan_op
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE, scan_backward_op, scan_op

RULES = {name: lab.build("update_rule", name, width=16, heads=2) for name in lab.available("update_rule")}
LINEAR = [name for name, rule in RULES.items() if isinstance(rule, LinearRule)]
SCANS = [
    pytest.param(tokens, hold, has_state, id=f"{tokens} tokens, hold {hold}{', from a state' * has_state}")
    for tokens, hold, has_state in (
        (2, None, 0),
        (CHUNK_SIZE, None, 1),
        (2 * CHUNK_SIZE + 7, None, 0),
        (40, 8, 1),
        (200, 90, 0),
    )
]


def make_inputs(rule, tokens, has_state):
    x, values = torch.randn(2, tokens, 16), rule.value_channels(8)
    q, k, v = (torch.randn(2, 2, tokens * writes, 8) for writes in (1, rule.writes, rule.writes))
    state = torch.randn(2, 2, 8, values) if has_state else None
    return q, k, v, rule.gates(x), state


def count_with_inplace_products(function):
    """Count FLOPs including in-place products, which torch does not count."""
    with (
        torch.no_grad(),
        FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: inplace_product_flops}) as counter,
    ):
        result = function()
    return counter.get_total_flops(), result


def inplace_product_flops(target, a, b, **_):
    return bmm_flop(a, b)


@pytest.mark.parametrize(("tokens", "hold", "has_state"), SCANS)
@pytest.mark.parametrize("name", LINEAR)
def test_flops_of_a_linear_rule_equal_those_counted_by_torch(name, tokens, hold, has_state):
    rule = RULES[name]
    q, k, v, gates, state = make_inputs(rule, tokens, has_state)
    flops = rule.count_flops(q, k, v, gates, state, ScanContext(hold))
    if name == "linear_attention":
        v = rule.append_count_channel(v)
    q, k, v, gates = rule.scan_inputs(q, k, v, gates)
    count = count_scalar_scan if gates.has_scalar_form else count_channel_gate_scan
    assert (flops.forward, flops.backward) == count(q, k, v, gates, state, hold or 0)


def count_scalar_scan(q, k, v, gates, state, hold):
    tied_gates = gates.write is gates.erase
    inputs = (q, k, v, gates.log_keep, gates.erase, None if tied_gates else gates.write)
    forward, (reads, _, *saved) = count_with_inplace_products(
        lambda: scan_op._init_fn(*inputs, state, None, hold, CHUNK_SIZE, tied_gates, True)
    )
    backward, _ = count_with_inplace_products(
        lambda: scan_backward_op._init_fn(
            reads, None, *inputs, None, *saved, hold, CHUNK_SIZE, tied_gates, state is None
        )
    )
    return forward, backward


def count_channel_gate_scan(q, k, v, gates, state, hold):
    log_keep = broadcast_gate(gates.log_keep, k).expand_as(k)
    inputs = (q, k, gates.written_values(fill_last_values(v, k)), gates.lookup_key(k), log_keep)
    early = gates.early_lookup is not None
    forward, (reads, _, *saved) = count_with_inplace_products(
        lambda: channel_gate_scan_op._init_fn(*inputs, state, None, hold, CHUNK_SIZE, early, True)
    )
    backward, _ = count_with_inplace_products(
        lambda: channel_gate_scan_backward_op._init_fn(reads, None, *inputs, None, *saved, hold, CHUNK_SIZE, early)
    )
    return forward, backward


RECURRENT_CASES = [(name, tokens) for name in sorted(RULES) for tokens in (1, 5) if tokens == 1 or name not in LINEAR]


@pytest.mark.parametrize(("name", "tokens"), RECURRENT_CASES)
def test_flops_of_a_recurrent_scan_equal_those_counted_by_torch(name, tokens):
    rule = RULES[name]
    q, k, v, gates, state = make_inputs(rule, tokens, True)
    counted, _ = count_with_inplace_products(lambda: rule.scan(q, k, v, gates, state, DEFAULT_CONTEXT))
    assert rule.count_flops(q, k, v, gates, state, DEFAULT_CONTEXT).forward == counted > 0
