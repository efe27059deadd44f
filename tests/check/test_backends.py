"""Every backend that runs here gives what the truth gives; and one that does not is caught."""

import json
import subprocess
import sys

import pytest
import torch

from hqlt_lab.check.backends import cells, compared, matrix
from hqlt_lab.errors import ConfigError
from hqlt_lab.ops import attention, linear
from hqlt_lab.ops.attention import attend_in_blocks
from hqlt_lab.ops.chunked import chunked
from hqlt_lab.registry import available
from tests.cli.test_cli import hqlt

LINEAR = ("delta", "delta_product", "gated_delta", "linear_attention", "retention")


@pytest.mark.parametrize("backend", ["torch", "blocks", "sdpa", "flex"])
def test_what_runs_on_a_cpu_gives_the_truth(backend):
    done = list(cells(backend, "cpu"))
    assert len(done) == len(available("timing")) * (len(available("update_rule")) if backend == "torch" else 1)
    passed = [cell for cell in done if cell.outcome == "passed"]
    assert all(cell.error < 1e-12 for cell in passed)
    assert {cell.detail for cell in done if cell not in passed} <= {"the rule is not linear in its state"}
    assert {cell.rule for cell in passed} == (set(LINEAR) if backend == "torch" else {""})
    assert all((cell.detail == "without gradients") == (backend == "flex") for cell in passed)


def test_what_needs_a_gpu_says_so():
    assert {(cell.outcome, cell.detail) for cell in cells("flash_attn", "cpu")} == {("not here", "it needs a GPU")}


def test_a_gradient_that_is_one_percent_off_is_caught(monkeypatch):
    def wrong(q, k, v, *rest):
        return chunked(q, k, v + 0.01 * (v - v.detach()), *rest)

    def wrong_too(q, k, v, *rest):
        return attend_in_blocks(q, k + 0.01 * (k - k.detach()), v, *rest)

    monkeypatch.setattr(linear, "chunked", wrong)
    monkeypatch.setattr(attention, "attend_in_blocks", wrong_too)
    for backend, rule in (("torch", "delta"), ("blocks", "")):
        cell = compared(backend, torch.float64, rule, "delayed_stream", "cpu")
        assert cell.outcome == "failed" and 1e-3 < cell.error < 1e-1 and cell.detail == "whole"


def test_a_state_that_is_dropped_is_caught_where_a_text_goes_on(monkeypatch):
    monkeypatch.setattr(linear, "chunked", lambda q, k, v, gates, state, course: chunked(q, k, v, gates, None, course))
    cell = compared("torch", torch.float64, "delta", "synchronous", "cpu")
    assert (cell.outcome, cell.detail) == ("failed", "going on")


def test_an_answer_that_is_no_number_is_caught(monkeypatch):
    def wrong(*inputs):
        answers, state = chunked(*inputs)
        return answers * torch.nan, state

    monkeypatch.setattr(linear, "chunked", wrong)
    assert compared("torch", torch.float64, "retention", "synchronous", "cpu").outcome == "failed"


def test_a_gradient_that_is_no_number_is_caught(monkeypatch):
    def wrong(q, *others):
        if q.requires_grad:
            q.register_hook(lambda gradient: gradient * torch.nan)
        return chunked(q, *others)

    monkeypatch.setattr(linear, "chunked", wrong)
    assert compared("torch", torch.float64, "retention", "synchronous", "cpu").outcome == "failed"


def test_the_command_prints_the_matrix():
    printed = hqlt("check", "backends", "sdpa")
    assert all(timing in printed for timing in available("timing")) and "softmax" in printed
    assert {cell["outcome"] for cell in json.loads(hqlt("check", "backends", "blocks", "--json"))} == {"passed"}


def test_a_failure_ends_the_command_with_what_failed(tmp_path):
    wrong = "import hqlt_lab.ops.linear as linear\nright = linear.chunked\n"
    wrong += "linear.chunked = lambda *x: tuple(2 * y for y in right(*x))\n"
    (tmp_path / "wrong.py").write_text(wrong)
    told = hqlt("--with", str(tmp_path / "wrong.py"), "check", "backends", "torch", code=3)
    assert "These do not give what the truth gives: torch float64 delta delayed_chunk" in told


def test_a_backend_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no backend 'flas'"):
        next(matrix("flas"))


@pytest.mark.slow
def test_flas_kernels_give_the_truth_in_the_interpreter():
    pytest.importorskip("fla")
    done = list(matrix("fla", "cpu"))
    assert not [cell for cell in done if cell.outcome == "failed"]
    passed = {(cell.precision, cell.rule, cell.timing) for cell in done if cell.outcome == "passed"}
    assert len(passed) == 2 * len(LINEAR) * len(available("timing"))
    assert {cell.rule for cell in done if cell.outcome == "not here"} == {"bounded_delta"}


PLANTED = """
import torch
from hqlt_lab.check.backends import compared
from hqlt_lab.check.interpreter import interpret

interpret()
import fla.ops.simple_gla.chunk as chunk

right = chunk.chunk_simple_gla_bwd


def wrong(*inputs, **options):
    q, k, v, g, state = right(*inputs, **options)
    return q, k, v, None if g is None else 1.05 * g, state


chunk.chunk_simple_gla_bwd = wrong
for rule in ("retention", "linear_attention", "fading"):
    print(compared("fla", torch.float32, rule, "synchronous", "cpu").outcome)
"""
FADING = '''
from torch import nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.steps import Gates
from hqlt_lab.registry import register


@register("update_rule", "fading")
class Fading(LinearRule):
    """Fading: what is kept is chosen by the content."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_fade = nn.Linear(width, heads, bias=False)

    def gates(self, x):
        return Gates(log_keep=-self.to_fade(x).mT.square())
'''


@pytest.mark.slow
def test_a_wrong_gradient_inside_flas_backward_is_caught(tmp_path, monkeypatch):
    pytest.importorskip("fla")
    (tmp_path / "fading.py").write_text(FADING)
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["fading.py"]\n')
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = subprocess.run([sys.executable, "-c", PLANTED], cwd=tmp_path, capture_output=True, text=True)
    # the keeps of retention are not learned, and linear attention has none
    assert done.stdout.split() == ["passed", "passed", "failed"], done.stderr
