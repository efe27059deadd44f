"""Every linear rule has a kernel of fla; its arguments, used as in the kernel's formula, give the reference scan."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.check.backend_comparison import relative_error
from hqlt_lab.check.component_under_test import small_spec
from hqlt_lab.check.triton_interpreter import enable_triton_interpreter
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext, distinct_gates, map_gates
from hqlt_lab.ops.scan.chunked import chunked_scan, neutralize_invalid_steps
from hqlt_lab.ops.scan.external_kernel_inputs import unroll_steps
from hqlt_lab.ops.scan.fla_kernels import MIN_LOG_KEEP, make_kernel_inputs, round_lookup_key
from hqlt_lab.ops.scan.fla_scan import fla_scan
from hqlt_lab.ops.scan.recurrent import recurrent_scan
from hqlt_lab.registry import available, build
from tests.ops.test_channel_gate_scan import B, doc_starts, make_scan

KERNELS_OF_RULES = {
    "comba": "comba",
    "delta": "delta_rule",
    "delta_product": "delta_rule",
    "erase_then_delta": "kda",
    "gated_delta": "gated_delta_rule",
    "gdn2": "gdn2",
    "gla": "gla",
    "hgrn2": "gla",
    "kda": "kda",
    "linear_attention": "simple_gla",
    "mamba2": "simple_gla",
    "retention": "simple_gla",
    "rwkv7": "dplr_delta_rule",
}


def kernel_step(kernel, state, x):
    """Return the state after one step of a kernel, as its documentation defines it, for the arguments x of the step."""
    k, v = x["k"][..., :, None], x["v"][..., None, :]

    def find(key, memory):
        return key[..., None, :] @ memory

    decay = x.get("gk", x.get("g", torch.zeros_like(x["k"])))
    decay = decay if decay.dim() == 3 else decay[..., None]
    decayed = state * decay.exp()[..., None]
    match kernel:
        case "simple_gla" | "gla":
            return decayed + k * v
        case "delta_rule" | "gated_delta_rule" | "kda":
            return decayed + x["beta"][..., None, None] * k * (v - find(x["k"], decayed))
        case "gdn2":
            return decayed + k * (x["w"][..., None, :] * v - find(x["b"] * x["k"], decayed))
        case "comba":
            return decayed + x["beta"][..., None, None] * k * (v - find(x["p"], state))
        case _:
            return decayed + x["b"][..., None] * find(x["a"], state) + k * v


def scan_by_kernel_formula(q, k, v, gates, state, context=DEFAULT_CONTEXT):
    """Return the kernel, the reads and the last state of a scan whose arguments are those of a kernel."""
    k, v, gates = neutralize_invalid_steps(k, v, gates, context.valid_mask)
    inputs = make_kernel_inputs(q, k, v, gates)
    steps = unroll_steps(inputs.q, inputs.step_arguments, context)
    reads = []
    for i in range(steps.q.shape[2]):
        if steps.doc_start is not None:
            state = state.masked_fill(steps.doc_start[:, i, None, None, None], 0.0)
        state = kernel_step(inputs.kernel, state, {name: x[:, :, i] for name, x in steps.step_arguments.items()})
        reads.append((steps.q[:, :, i, None] @ state)[:, :, 0])
    return inputs.kernel, steps.select_token_reads(torch.stack(reads, 2)), state


def erase_before_write(inputs):
    """Return inputs of two writes per token as RWKV-7 has them: a value only for the second write."""
    q, k, v, gates, state = inputs
    return q, k, v[:, :, 1::2], gates, state


def tie_gates(inputs):
    q, k, v, gates, state = inputs
    return q, k, v, gates._replace(write=gates.erase), state


def look_up_late(inputs):
    q, k, v, gates, state = inputs
    return q, k, v, gates._replace(lookup=gates.early_lookup, early_lookup=None), state


def scans(length):
    """Yield the expected kernel and the inputs of a scan, for every form of gates and lookups."""
    for decay, without, tied in (
        ("scalar", "simple_gla", "gated_delta_rule"),
        ("none", "simple_gla", "delta_rule"),
        ("mild", "gla", "kda"),
    ):
        yield without, make_scan(length, decay=decay)
        yield "gdn2", make_scan(length, lookup="channels", decay=decay)
        q, k, v, gates, state = make_scan(length, lookup="key", decay=decay)
        yield "gdn2", (q, k, v, gates._replace(write=None), state)
        yield tied, tie_gates((q, k, v, gates, state))
        for lookup in ("own", "early"):
            yield "dplr_delta_rule", make_scan(length, lookup=lookup, decay=decay)
        kernel = "dplr_delta_rule" if decay == "mild" else "comba"
        yield kernel, tie_gates(make_scan(length, lookup="early", decay=decay))
        first = make_scan(length, lookup="first", decay=decay, writes=2)
        for inputs in (first, look_up_late(first)):
            yield "dplr_delta_rule", inputs
            yield "dplr_delta_rule", erase_before_write(inputs)
    yield "dplr_delta_rule", make_scan(length, lookup="first", decay="mild", writes=3)


@pytest.mark.parametrize("hold", [None, 4])
def test_arguments_of_each_kernel_give_the_reference_scan(hold):
    valid = torch.rand(B, 11, generator=torch.Generator().manual_seed(4)) < 0.8
    context = ScanContext(hold, valid, doc_starts(11, hold))
    for kernel, inputs in scans(11):
        used_kernel, reads, state = scan_by_kernel_formula(*inputs, context)
        assert used_kernel == kernel
        expected, expected_state = recurrent_scan(*inputs, context)
        torch.testing.assert_close(reads, expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(state, expected_state, atol=1e-12, rtol=0)


def test_every_linear_rule_has_its_kernel():
    kernels = {}
    for name in available("update_rule"):
        rule = build("update_rule", small_spec("update_rule", name), width=32, heads=2)
        if isinstance(rule, LinearRule):
            inputs = rule.example_scan_inputs(rule.gates(torch.randn(1, 1, 32)), 16, 16)
            kernels[name] = make_kernel_inputs(inputs.q, inputs.k, inputs.v.bfloat16(), inputs.gates).kernel
    assert kernels == KERNELS_OF_RULES


def test_rwkv7_takes_one_step_per_token():
    rule = build("update_rule", "rwkv7", width=32, heads=2)
    inputs = rule.example_scan_inputs(rule.gates(torch.randn(1, 5, 32)), 16, 16)
    assert inputs.k.shape[2] == 10 and make_kernel_inputs(*inputs).step_arguments["k"].shape[2] == 5


def test_values_of_last_writes_only_are_values_of_0_elsewhere():
    q, k, v, gates, state = make_scan(20, lookup="key", decay="mild", writes=3)
    v[:, :, 0::3] = v[:, :, 1::3] = 0.0
    for scan in (recurrent_scan, chunked_scan):
        expected, actual = scan(q, k, v, gates, state), scan(q, k, v[:, :, 2::3], gates, state)
        assert torch.equal(actual[0], expected[0]) and torch.equal(actual[1], expected[1])


def test_decays_are_bounded_for_the_kernels():
    q, k, v, _, _ = make_scan(5)
    gates = Gates(torch.full(k.shape, -1000.0))
    assert (make_kernel_inputs(q, k, v, gates).step_arguments["g"] == MIN_LOG_KEEP).all()


def final_norm(inputs):
    """Return the norm of the memory after the erasing steps of a kernel, which start from the first key."""
    state = inputs.step_arguments["k"][:, :, 0].float()[..., None].expand(-1, -1, -1, 1)
    for i in range(inputs.step_arguments["k"].shape[2]):
        state = kernel_step(
            inputs.kernel, state, {name: x[:, :, i].float() for name, x in inputs.step_arguments.items()}
        )
    return state.square().sum((-1, -2)).sqrt()


@pytest.mark.parametrize("lookup", ["key", "channels", "own"])
def test_memory_with_rounded_keys_and_any_kernel_does_not_grow(lookup):
    generator = torch.Generator().manual_seed(3)
    k = F.normalize(torch.randn(1, 32, 1, 64, generator=generator), dim=-1).expand(-1, -1, 512, -1)
    q, v, erase = k[:, :, :1].expand_as(k), torch.zeros(1, 32, 512, 1), torch.full((1, 32, 512), 2.0)
    gates = {
        "key": Gates(erase=erase, write=erase),
        "channels": Gates(erase=erase[..., None].expand_as(k), write=erase),
        "own": Gates(erase=erase, early_lookup=k),
    }[lookup]
    exact = final_norm(make_kernel_inputs(q, k, v, gates))
    torch.testing.assert_close(exact, torch.ones(1, 32), atol=1e-3, rtol=0)
    rounded = final_norm(make_kernel_inputs(q, k, v.bfloat16(), gates))
    assert (rounded - 1).abs().max() < 0.05, rounded


def test_lookup_keys_are_rounded_such_that_their_product_with_the_key_is_kept():
    generator = torch.Generator().manual_seed(0)
    lookup, key = (torch.randn(1000, 64, generator=generator) for _ in range(2))
    rounded_key = key.bfloat16()
    exact = (lookup * key).sum(-1)
    error = (round_lookup_key(lookup, key, rounded_key).float() * rounded_key.float()).sum(-1) - exact
    plain_error = (lookup.bfloat16().float() * rounded_key.float()).sum(-1) - exact
    assert error.square().mean().sqrt() < 0.05 * plain_error.square().mean().sqrt()
    assert round_lookup_key(lookup, key, key) is lookup


def test_lookup_keys_that_find_nothing_are_only_rounded():
    lookup, key = torch.randn(2, 16), torch.zeros(2, 16)
    assert torch.equal(round_lookup_key(lookup, key, key.bfloat16()), lookup.bfloat16())


def values_and_gradients(scan, inputs, context, dtype):
    """Return reads, state and the gradients of all inputs; q, k and v in one precision, gates and state in another."""
    q, k, v, gates, state = inputs
    gate_dtype = torch.promote_types(dtype, torch.float32)
    leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
    gates = map_gates(lambda gate: gate.detach().to(gate_dtype).requires_grad_(), gates)
    state = state.detach().to(gate_dtype).requires_grad_()
    outputs = scan(*leaves, gates, state, context)
    noise = [torch.randn(x.shape, generator=torch.Generator().manual_seed(7)) for x in outputs]
    loss = sum((x * y).sum() for x, y in zip(outputs, noise, strict=True))
    return [*outputs, *torch.autograd.grad(loss, [*leaves, *distinct_gates(gates), state])]


def print_errors_in_interpreter():
    """Print the dtype and the largest relative error of scans by fla that no shipped rule needs by itself.

    Those are forms of gates, some of them with hold, and keys with more channels than values, as of wide feature maps.
    """
    enable_triton_interpreter()
    valid = torch.rand(B, 18, generator=torch.Generator().manual_seed(4)) < 0.8
    first = make_scan(18, lookup="first", writes=2)
    for hold, dtype, inputs in (
        (4, torch.float32, make_scan(18, lookup="channels", decay="scalar")),
        (4, torch.float32, erase_before_write(first)),
        (None, torch.float32, erase_before_write(look_up_late(first))),
        (None, torch.float32, make_scan(18, lookup="own", decay="scalar", writes=2)),
        (None, torch.float16, make_scan(18, lookup="early")),
        (None, torch.float32, make_scan(18, decay="scalar")),
        (None, torch.float32, tie_gates(make_scan(18, lookup="key", decay="scalar"))),
        (None, torch.float32, tie_gates(make_scan(18, lookup="key", decay="none"))),
    ):
        context = ScanContext(hold, valid, doc_starts(18, hold))
        expected = values_and_gradients(recurrent_scan, inputs, context, torch.float64)
        actual = values_and_gradients(fla_scan, inputs, context, dtype)
        error = max(relative_error(a, b) for a, b in zip(actual, expected, strict=True))
        print(json.dumps([str(dtype), error]), flush=True)


@pytest.mark.slow
def test_forms_of_gates_that_no_rule_has_agree_with_the_reference_in_the_interpreter(monkeypatch):
    pytest.importorskip("fla")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    script = "from tests.ops.test_fla_kernels import print_errors_in_interpreter; print_errors_in_interpreter()"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    errors = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(errors) == 8, process.stderr
    for dtype, error in errors:
        assert error < {"torch.float32": 1e-5, "torch.float16": 1e-2}[dtype]
