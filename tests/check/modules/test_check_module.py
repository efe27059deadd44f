"""Targets, call options and the command `hqlt check module`."""

import json

import pytest
import torch
from typer.testing import CliRunner

import hqlt_lab as lab
from hqlt_lab.check.modules.adapter_interface import NotApplicable
from hqlt_lab.check.modules.call_options import CallOptions, TensorSpec, parse_call_options
from hqlt_lab.check.modules.target import make_adapter
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import PartialFailure
from tests.issues import raises_issue

LAYER = """
import torch
from torch import nn


class CausalMean(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.to_out = nn.Linear(width, width)

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1)[:, None].to(x)
        return self.to_out(x.cumsum(1) / count)


class Mean(CausalMean):
    def forward(self, x):
        return self.to_out(x.mean(1, keepdim=True).expand_as(x))


class TokenModel(nn.Module):
    def __init__(self, vocab_size=11, width=4):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(vocab_size, width), CausalMean(width)

    def forward(self, tokens):
        return self.layer(self.embedding(tokens))


def reversed_sum(q, k, v, g):
    return v.flip(1).cumsum(1).flip(1) * (q * k).sum(-1, keepdim=True) * g[..., None].exp()
"""


@pytest.fixture(autouse=True)
def layer_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_mean_layers.py").write_text(LAYER)


def invoke(*arguments):
    return CliRunner().invoke(app, ["check", "module", *arguments])


def test_layer_in_the_working_directory_passes_and_says_what_cannot_be_tried():
    result = invoke("my_mean_layers:CausalMean", "--set", "width=6")
    assert result.exit_code == 0 and "forward has no argument for cache" in result.stdout
    report = json.loads(invoke("my_mean_layers:CausalMean", "--set", "width=6", "--json").stdout)[0]
    assert report["passed"] and report["kind"] == "module"
    outcomes = {line["check"]: line["outcome"] for line in report["results"]}
    assert outcomes["later tokens change nothing"] == "passed"
    assert outcomes["decoding equals one pass"] == "not applicable"


def test_layer_that_fails_a_line_raises_a_partial_failure():
    result = invoke("my_mean_layers:Mean", "--set", "width=6", "--against", "my_mean_layers:CausalMean")
    assert isinstance(result.exception, PartialFailure)
    for line in ("later tokens change nothing", "implementations are equal"):
        assert f"{line}" in result.stdout and "failed" in result.stdout


def test_tokens_are_detected_and_their_embeddings_get_no_gradient_from_the_past():
    report = lab.check_module("my_mean_layers:TokenModel")
    report.assert_passed()
    assert report.results[2].detail == "every bit in float64"


def test_anti_causal_function_fails_three_lines():
    report = lab.check_module("my_mean_layers:reversed_sum")
    assert [result.outcome for result in report.results[:3]] == ["failed"] * 3
    with pytest.raises(AssertionError, match="later tokens change nothing"):
        report.assert_passed()


@pytest.mark.parametrize(
    ("target", "call", "path", "code"),
    [
        ("my_mean_layers", {}, "target", "invalid_target_name"),
        ("no_such_package:Layer", {}, "target", "target_not_importable"),
        ("my_mean_layers:CausalMeen", {}, "target", "target_not_found"),
        ("my_mean_layers:__name__", {}, "target", "target_not_callable"),
        ("my_mean_layers:CausalMean", {}, "--call", "unknown_module_size"),
        ("my_mean_layers:CausalMean", {"mask": "padding"}, "--call mask", "unknown_forward_argument"),
        ("my_mean_layers:CausalMean", {"documents": "x"}, "--call documents", "unknown_documents_argument"),
        ("my_mean_layers:CausalMean", {"size": 1}, "--call", "unknown_call_option"),
        ("my_mean_layers:CausalMean", {"chunk": 0}, "chunk", "length_below_one"),
        ("my_mean_layers:CausalMean", {"input": "audio"}, "input", "unknown_module_input"),
        ("my_mean_layers:reversed_sum", {"tensor.w": "BTH"}, "--call tensor.w", "unknown_function_argument"),
        ("my_mean_layers:reversed_sum", {"tensor.g": "TH"}, "tensor", "invalid_tensor_shape"),
        ("my_mean_layers:reversed_sum", {"tensor.g": "BTH:loud"}, "tensor", "unknown_tensor_values"),
        ("torch:outer", {}, "target", "target_not_callable"),
    ],
)
def test_invalid_targets_and_options_are_errors_of_the_caller(target, call, path, code):
    if target == "torch:outer":
        target = torch.nn.Linear(2, 2)
    with raises_issue(path, code):
        lab.check_module(target, call=call)


def test_function_with_an_unknown_argument_asks_for_its_shape():
    def mix(q, k, v, momentum):
        return v * momentum[..., None]

    with raises_issue("--call tensor.momentum", "unknown_argument_shape"):
        lab.check_module(mix)
    inputs = make_adapter(mix, {}, parse_call_options({"tensor.momentum": "BHT:strength"})).draw_inputs(3, 5)
    assert inputs["momentum"].shape == (3, 5, 2) and 0 < inputs["momentum"].min() < inputs["momentum"].max() < 1


def test_options_of_the_module_check_are_errors_for_components():
    result = CliRunner().invoke(app, ["check", "mixer", "sum", "--set", "width=3"])
    assert result.exception.issues[0].code == "option_of_check_module"
    assert invoke().exception.issues[0].code == "module_without_name"


def test_declared_size_can_be_given():
    adapter = make_adapter("my_mean_layers:CausalMean", {"width": 4}, CallOptions(state_bytes=16))
    assert adapter.declared_state_bytes(None) == 16
    with pytest.raises(NotApplicable):
        make_adapter("my_mean_layers:CausalMean", {"width": 4}, CallOptions()).declared_state_bytes(None)
    assert TensorSpec.parse("BHTK:unit") == TensorSpec("BHTK", "unit")
