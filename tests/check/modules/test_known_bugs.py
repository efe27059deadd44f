"""Known bugs of other projects, re-created in small, are caught by the intended line; the correct layer passes all."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.modules.check_module import LINES
from tests.check.modules import toy_layers

CALL = {"chunk": 16}
STREAMING = {"decoding equals one pass", "continuing equals one pass"}


def failed_lines(layer, **call):
    return {result.check for result in lab.check_module(layer, call=CALL | call).failures}


def test_correct_layer_passes_every_line():
    report = lab.check_module(toy_layers.ToyLayer, call=CALL)
    report.assert_passed()
    assert [result.outcome for result in report.results] == ["passed"] * len(LINES)
    assert report.results[0].detail == "every bit in float64, float32, bfloat16"


# the lines that must fail, and no others
BUGS = {
    "MaskWithoutDecay": {"padding leaves the state"},
    "IgnoresMask": {"padding on the left has no effect", "padding leaves the state"},
    "CacheOffset": {"padding leaves the state", *STREAMING},
    "BiasInLinear": {"initial values survive a backbone"},
    "OverwritingBackbone": {"initial values survive a backbone"},
    "WrongStateSize": {"state has the declared size"},
    "LostDtype": {"dtype is kept"},
    "UnusedParameter": {"every parameter gets a gradient"},
    "LeakingDocuments": {"packed documents are independent"},
    "UnsavedValue": {"initial values survive a file"},
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught_by_the_intended_lines_only(name):
    assert failed_lines(getattr(toy_layers, name)) == BUGS[name]


# bugs with wide consequences: at least these lines fail
WIDE_BUGS = {
    "FutureLeak": {"later tokens change nothing", "later tokens get no gradient"},
    "LateChunkLeak": {"later tokens change nothing", "appended tokens change nothing", "later tokens get no gradient"},
    "CumsumOverHeads": STREAMING,
    "CumsumOverBatch": {"rows are independent"},
    "GrowingState": {"state does not grow", "state has the declared size"},
    "MixedRows": {"rows are independent"},
    "Nondeterministic": {"later tokens change nothing"},
}


@pytest.mark.parametrize("name", WIDE_BUGS)
def test_bug_is_caught_by_the_intended_lines_among_others(name):
    assert failed_lines(getattr(toy_layers, name)) >= WIDE_BUGS[name]


def test_leak_in_the_order_of_rounding_is_reported_and_fails_if_every_bit_is_required():
    report = lab.check_module(toy_layers.RoundingLeak, call=CALL)
    report.assert_passed()
    assert report.results[0].detail.startswith("largest deviation")
    assert "later tokens change nothing" in failed_lines(toy_layers.RoundingLeak, bitwise=True)
    assert failed_lines(toy_layers.ToyLayer, bitwise=True) == set()


def test_marked_bias_survives_a_backbone():
    class Marked(toy_layers.BiasInLinear):
        def __init__(self, width=8, heads=2):
            super().__init__(width, heads)
            self.to_decay.bias._no_reinit = True

    assert failed_lines(Marked) == set()


def test_two_implementations_are_compared_in_values_and_gradients():
    class WrongGradient(toy_layers.ToyLayer):
        def log_decay(self, x):
            g = super().log_decay(x)
            return g.detach() + 0.5 * (g - g.detach())

    class OtherChunks(toy_layers.ToyLayer):
        def scan_layer(self, x, mask=None, state=None):
            if x.shape[1] <= 5:
                return super().scan_layer(x, mask, state)
            first, state = super().scan_layer(x[:, :5], None if mask is None else mask[:, :5], state)
            rest, state = super().scan_layer(x[:, 5:], None if mask is None else mask[:, 5:], state)
            return torch.cat([first, rest], 1), state

    def compare(other):
        return lab.check_module(toy_layers.ToyLayer, call=CALL, against=other).results[-2]

    assert compare(OtherChunks).outcome == "passed"
    for other, place in ((WrongGradient, "the gradients of x"), (toy_layers.FutureLeak, "the outputs")):
        result = compare(other)
        assert result.outcome == "failed" and place in result.detail, result
