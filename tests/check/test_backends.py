"""Backends agree with the reference implementation, and one that does not is detected."""

import json
import subprocess
import sys

import pytest
import torch

from hqlt_lab.check.backend_comparison import (
    compare_backend,
    compare_backends,
    compare_cell,
    compare_decay_gradients,
)
from hqlt_lab.ops import dispatch
from hqlt_lab.ops.attention import scheduled_softmax
from hqlt_lab.ops.attention.scheduled_softmax import attend_by_form
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.registry import available
from tests.cli.test_cli import run_hqlt
from tests.issues import raises_issue

ATTENTION = {label for name in available("attention") for label in (name, f"{name}, 2 sinks")}
LINEAR_RULES = set(available("update_rule")) - {"tanh_delta"}
SLOW_IN_THE_INTERPRETER = {"erase_then_delta", "gdn2", "kda", "rwkv7"}


@pytest.mark.parametrize("backend", ["torch", "blocks", "sdpa", "flex"])
def test_cpu_backend_agrees_with_the_reference(backend):
    cells = [cell for cell in compare_backend(backend, "cpu") if "gradient of log-keeps" not in cell.component]
    components = {"torch": len(available("update_rule"))}.get(backend, 2 * len(available("attention")))
    assert len(cells) == len(available("timing")) * components
    passed = [cell for cell in cells if cell.outcome == "passed"]
    assert all(cell.error < 1e-12 for cell in passed)
    assert {cell.detail for cell in cells if cell not in passed} <= {"the rule is not linear in its state"}
    assert {cell.component for cell in passed} == (LINEAR_RULES if backend == "torch" else ATTENTION)
    assert all((cell.detail == "without gradients") == (backend == "flex") for cell in passed)


def test_gradient_of_small_keeps_is_compared_in_float32():
    cells = list(compare_decay_gradients("torch", "cpu"))
    assert [cell.component for cell in cells] == [
        f"{rule}, gradient of log-keeps around {log_keep}" for rule in ("gated_delta", "kda") for log_keep in (-5, -10)
    ]
    assert {(cell.outcome, cell.precision) for cell in cells} == {("passed", "float32")}
    assert all(cell.error < 1e-6 for cell in cells)


def test_backend_that_needs_a_gpu_is_reported_as_unavailable():
    assert {(cell.outcome, cell.detail) for cell in compare_backend("flash_attn", "cpu")} == {
        ("unavailable", "it needs a GPU")
    }


def test_gradient_that_is_one_percent_off_is_detected(monkeypatch):
    def wrong_scan(q, k, v, *args):
        return chunked_scan(q, k, v + 0.01 * (v - v.detach()), *args)

    def wrong_attention(q, k, v, *args):
        return attend_by_form(q, k + 0.01 * (k - k.detach()), v, *args)

    monkeypatch.setattr(dispatch, "chunked_scan", wrong_scan)
    monkeypatch.setattr(scheduled_softmax, "attend_by_form", wrong_attention)
    for backend, component in (("torch", "delta"), ("blocks", "softmax")):
        cell = compare_cell(backend, torch.float64, component, "delayed_stream", "cpu")
        assert cell.outcome == "failed" and 1e-3 < cell.error < 1e-1 and cell.detail == "whole"


def test_dropped_state_is_detected_when_a_sequence_continues(monkeypatch):
    def stateless_scan(q, k, v, gates, state, context):
        return chunked_scan(q, k, v, gates, None, context)

    monkeypatch.setattr(dispatch, "chunked_scan", stateless_scan)
    cell = compare_cell("torch", torch.float64, "delta", "synchronous", "cpu")
    assert (cell.outcome, cell.detail) == ("failed", "continued")


def test_output_that_is_nan_is_detected(monkeypatch):
    def wrong_scan(*inputs):
        outputs, state = chunked_scan(*inputs)
        return outputs * torch.nan, state

    monkeypatch.setattr(dispatch, "chunked_scan", wrong_scan)
    assert compare_cell("torch", torch.float64, "retention", "synchronous", "cpu").outcome == "failed"


def test_gradient_that_is_nan_is_detected(monkeypatch):
    def wrong_scan(q, *args):
        if q.requires_grad:
            q.register_hook(lambda gradient: gradient * torch.nan)
        return chunked_scan(q, *args)

    monkeypatch.setattr(dispatch, "chunked_scan", wrong_scan)
    assert compare_cell("torch", torch.float64, "retention", "synchronous", "cpu").outcome == "failed"


def test_command_prints_the_matrix():
    output = run_hqlt("check", "backends", "sdpa")
    assert all(timing in output for timing in available("timing")) and "softmax" in output
    assert {cell["outcome"] for cell in json.loads(run_hqlt("check", "backends", "blocks", "--json"))} == {"passed"}


def test_command_fails_and_names_the_cell_that_failed(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "import hqlt_lab.ops.dispatch as dispatch\n"
        "right = dispatch.chunked_scan\n"
        "dispatch.chunked_scan = lambda *x: tuple(2 * y for y in right(*x))\n"
    )
    message = run_hqlt("--with", str(tmp_path / "wrong.py"), "check", "backends", "torch", code=3)
    assert "These differ from the reference by more than the tolerance: torch float64 comba delayed_chunk" in message
    assert "torch float64 delta delayed_chunk" in message


def test_unknown_backend_is_an_error_that_names_it():
    with raises_issue("backend", "unknown_backend"):
        next(compare_backends("flas"))


@pytest.mark.slow
def test_fla_kernels_agree_with_the_reference_in_the_interpreter():
    pytest.importorskip("fla")
    cells = list(compare_backends("fla", "cpu"))
    assert not [cell for cell in cells if cell.outcome == "failed"]
    passed = {(cell.precision, cell.component, cell.timing) for cell in cells if cell.outcome == "passed"}
    timings = available("timing")
    assert passed == {
        (precision, rule, timing)
        for precision in ("float32", "float16")
        for rule in LINEAR_RULES
        for timing in timings
        if timing == "synchronous" or (precision == "float32" and rule not in SLOW_IN_THE_INTERPRETER)
    }
    reasons = {cell.detail for cell in cells if cell.outcome == "unavailable" and cell.precision == "bfloat16"}
    assert reasons == {"the interpreter computes bfloat16 incorrectly", "the rule is not linear in its state"}
    reported = [cell for cell in cells if cell.outcome == "reported"]
    assert len(reported) == 4 and all(cell.error > 1e-5 for cell in reported)  # else it could be judged


WRONG_GRADIENT_SCRIPT = """
import torch
from hqlt_lab.check.backend_comparison import compare_cell
from hqlt_lab.check.triton_interpreter import enable_triton_interpreter

enable_triton_interpreter()
import fla.ops.simple_gla.chunk as chunk

right = chunk.chunk_simple_gla_bwd


def wrong(*inputs, **options):
    q, k, v, g, state = right(*inputs, **options)
    return q, k, v, None if g is None else 1.05 * g, state


chunk.chunk_simple_gla_bwd = wrong
for rule in ("retention", "linear_attention", "content_decay"):
    print(compare_cell("fla", torch.float32, rule, "synchronous", "cpu").outcome)
"""
CONTENT_DECAY_RULE = '''
from torch import nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "content_decay")
class ContentDecay(LinearRule):
    """Content decay: how much is kept depends on the token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_decay = nn.Linear(width, heads, bias=False)

    def gates(self, x):
        return Gates(log_keep=-self.to_decay(x).mT.square())
'''


@pytest.mark.slow
def test_wrong_gradient_inside_the_backward_of_fla_is_detected(tmp_path, monkeypatch):
    pytest.importorskip("fla")
    (tmp_path / "content_decay.py").write_text(CONTENT_DECAY_RULE)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["content_decay.py"]\n')
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    command = [sys.executable, "-c", WRONG_GRADIENT_SCRIPT]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    # the decay of retention is not learned, and linear attention has none
    assert process.stdout.split() == ["passed", "passed", "failed"], process.stderr
