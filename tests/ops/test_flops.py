"""FLOPs of the scans, by torch's count of the products they are made of."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, bmm_flop

import hqlt_lab as lab
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.chunked import CHUNK
from hqlt_lab.ops.scan import scan, scan_backward
from hqlt_lab.ops.steps import PLAIN, Course

RULES = {name: lab.build("update_rule", name, width=16, heads=2) for name in lab.available("update_rule")}
LINEAR = [name for name, rule in RULES.items() if isinstance(rule, LinearRule)]
COURSES = [
    pytest.param(tokens, hold, stated, id=f"{tokens} tokens, hold {hold}{', from a state' * stated}")
    for tokens, hold, stated in ((2, None, 0), (CHUNK, None, 1), (2 * CHUNK + 7, None, 0), (40, 8, 1), (200, 90, 0))
]


def example(rule, tokens, stated):
    x, values = torch.randn(2, tokens, 16), rule.value_channels(8)
    q, k, v = (torch.randn(2, 2, tokens * writes, 8) for writes in (1, rule.writes, rule.writes))
    state = torch.randn(2, 2, 8, values) if stated else None
    return q, k, v, rule.gates(x), state


def counted(work):
    """With the products that are added in place, which torch does not know."""
    with (
        torch.no_grad(),
        FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: product}) as counter,
    ):
        made = work()
    return counter.get_total_flops(), made


def product(into, a, b, **_):
    return bmm_flop(a, b)


@pytest.mark.parametrize(("tokens", "hold", "stated"), COURSES)
@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_rule_computes_what_torch_counts_of_its_scan_and_its_gradients(name, tokens, hold, stated):
    rule = RULES[name]
    q, k, v, gates, state = example(rule, tokens, stated)
    told = rule.flops(q, k, v, gates, state, Course(hold))
    v = rule.with_count(v) if name == "linear_attention" else v
    numbers, one = (hold or 0, CHUNK), gates.write is gates.erase
    inputs = (q, k, v, gates.log_keep, gates.erase, None if one else gates.write)
    forward, (reads, _, *kept) = counted(lambda: scan._init_fn(*inputs, state, None, *numbers, one, True))
    backward, _ = counted(
        lambda: scan_backward._init_fn(reads, None, *inputs, None, *kept, *numbers, one, state is None)
    )
    assert (told.forward, told.backward) == (forward, backward)


STEPS = [(name, tokens) for name in sorted(RULES) for tokens in (1, 5) if tokens == 1 or name not in LINEAR]


@pytest.mark.parametrize(("name", "tokens"), STEPS)
def test_steps_compute_what_torch_counts(name, tokens):
    rule = RULES[name]
    q, k, v, gates, state = example(rule, tokens, True)
    found, _ = counted(lambda: rule.scan(q, k, v, gates, state, PLAIN))
    assert rule.flops(q, k, v, gates, state, PLAIN).forward == found > 0
