"""Components that are broken on purpose fail the intended conformance check."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.common_checks import combines_with_every_component, reads_only_the_past
from hqlt_lab.check.component_under_test import ComponentCase, assert_close, fixed_noise
from hqlt_lab.check.conformance import check_component, run_check
from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.update_rules._base import StepRule
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.components.update_rules.gated_delta import GatedDelta
from hqlt_lab.components.update_rules.gla import Gla
from hqlt_lab.components.update_rules.linear_attention import LinearAttention
from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE
from hqlt_lab.registry import register
from tests.issues import raises_issue


@pytest.fixture(autouse=True)
def clean_registry():
    with lab.temporary_components():
        yield


def failed_checks(kind, name):
    return {result.check for result in check_component(kind, name, quick=True).failures}


def test_rule_that_looks_ahead_fails_causality():
    @register("update_rule", "non_causal")
    class NonCausal(Delta):
        def gates(self, x):
            return super().gates(x + x.mean(1, keepdim=True))

    failed = failed_checks("update_rule", "non_causal")
    assert "reads only the past" in failed
    assert "scan equals the reference" not in failed


def run_causality_check(name):
    return run_check(reads_only_the_past, ComponentCase("update_rule", name))[0]


def deviation_before_changed_tokens(name, length):
    model, x = ComponentCase("update_rule", name).build_model(), fixed_noise(2, length, 8)
    first_half = x[:, : length // 2]
    changed = torch.cat([first_half, fixed_noise(2, length - length // 2, 8, seed=1)], 1)
    return (model(x)[0] - model(changed)[0])[:, : length // 2].abs().max().item()


def test_rule_whose_chunks_read_their_last_token_fails_causality():
    """The leak starts in a full chunk, so that 9 tokens do not show it."""

    @register("update_rule", "leaky_chunk")
    class LeakyChunk(GatedDelta):
        def gates(self, x):
            gates = super().gates(x)
            tokens = torch.arange(x.shape[1])
            chunk_end = tokens // CHUNK_SIZE * CHUNK_SIZE + CHUNK_SIZE - 1
            last_token = torch.where(chunk_end < x.shape[1], chunk_end, tokens)
            return gates._replace(log_keep=gates.log_keep + 0.1 * gates.log_keep[..., last_token])

    assert deviation_before_changed_tokens("leaky_chunk", 9) == 0
    result = run_causality_check("leaky_chunk")
    assert result.outcome == "failed" and "change the outputs before by" in result.detail


def test_scan_whose_rounding_depends_on_later_gates_fails_causality():
    """Decays relative to the middle token of a sub-chunk cancel in exact arithmetic only, as in fla#1240."""

    @register("update_rule", "midpoint_anchor")
    class MidpointAnchor(Gla):
        def scan(self, q, k, v, gates, state, context):
            g = gates.log_keep.cumsum(2)
            tokens = torch.arange(g.shape[2])
            anchor = g[:, :, (tokens // 16 * 16 + 8).clamp(max=g.shape[2] - 1)]
            factor = (g - anchor).exp() * (anchor - g).exp()  # 1 up to rounding
            return super().scan(q, k * factor, v, gates, state, context)

    assert deviation_before_changed_tokens("midpoint_anchor", 101) < 1e-9  # what a tolerance would accept
    result = run_causality_check("midpoint_anchor")
    assert result.outcome == "failed" and "the arithmetic depends on later tokens" in result.detail
    MidpointAnchor.scan_is_bitwise_causal = False
    assert run_causality_check("midpoint_anchor").outcome == "passed"


def test_scan_whose_gradients_reach_later_tokens_fails_causality():
    @register("update_rule", "leaky_gradient")
    class LeakyGradient(Delta):
        def gates(self, x):
            zero = x.mean(1, keepdim=True) - x.mean(1, keepdim=True).detach()  # 0, with a gradient
            return super().gates(x + zero)

    result = run_causality_check("leaky_gradient")
    assert result.outcome == "failed" and "gradient with respect to later tokens" in result.detail


def test_rule_whose_scan_decays_wrongly_differs_from_the_reference():
    @register("update_rule", "wrong_decay")
    class WrongDecay(GatedDelta):
        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates._replace(log_keep=gates.log_keep * 0.9), state, context)

    assert failed_checks("update_rule", "wrong_decay") == {"scan equals the reference"}


def test_rule_that_assumes_keys_of_width_by_heads_channels_fails_memories_of_other_sizes():
    @register("update_rule", "fixed_channels")
    class FixedChannels(Delta):
        has_key_channels = True

        def gates(self, x):
            gates = super().gates(x)
            return gates._replace(erase=gates.erase[..., None].expand(-1, -1, -1, x.shape[-1] // gates.erase.shape[1]))

    (failure,) = check_component("update_rule", "fixed_channels", quick=True).failures
    assert failure.check == "memories may differ in size" and "key_dim" in failure.detail


def test_rule_that_fails_at_any_size_is_not_advised_to_take_other_sizes():
    @register("update_rule", "uninitialized")
    class Uninitialized(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.rate = torch.nn.Parameter(torch.ones(heads))  # is not initialized by the model

    report = check_component("update_rule", "uninitialized", quick=True)
    (result,) = [result for result in report.results if result.check == "memories may differ in size"]
    assert "has the parameters rate" in result.detail and "key_dim" not in result.detail


def test_rule_that_ignores_the_given_state_fails_streaming():
    @register("update_rule", "stateless")
    class Stateless(Delta):
        def reference(self, q, k, v, gates, state, context):
            return super().reference(q, k, v, gates, None, context)

        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates, None, context)

    streaming_checks = {
        "any split gives the same result",
        "padding has no effect",
        "packed documents are independent",
        "rows can be selected",
    }
    assert failed_checks("update_rule", "stateless") == streaming_checks


def test_rule_that_writes_before_the_first_token_fails_the_empty_memory():
    @register("update_rule", "writes_padding")
    class WritesPadding(StepRule):
        feature_map = "elu_plus_one"  # maps a zero key to ones
        gates = Delta.gates

        def __init__(self, width, heads):
            super().__init__()
            self.to_beta, self.max_beta = torch.nn.Linear(width, heads), 1.0

        def step(self, state, k, v, gates):
            return state + gates.write[..., None, None] * k[..., :, None] * v[..., None, :]

        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v + 1, gates, state, context._replace(valid_mask=None))

    assert "an empty memory reads zero" in failed_checks("update_rule", "writes_padding")


def test_rule_that_ignores_hold_fails_the_empty_memory():
    @register("update_rule", "no_hold")
    class NoHold(Delta):
        def reference(self, q, k, v, gates, state, context):
            return super().reference(q, k, v, gates, state, context._replace(hold=None))

        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates, state, context._replace(hold=None))

    assert "an empty memory reads zero" in failed_checks("update_rule", "no_hold")


def test_rule_that_mixes_rows_fails_row_independence():
    @register("update_rule", "mixes_rows")
    class MixesRows(Delta):
        def gates(self, x):
            return super().gates(x + x.mean(0, keepdim=True))

    assert "rows are independent" in failed_checks("update_rule", "mixes_rows")


def test_rule_that_mutates_the_given_state_fails():
    @register("update_rule", "mutating")
    class Mutating(Delta):
        def scan(self, q, k, v, gates, state, context):
            result = super().scan(q, k, v, gates, state, context)
            if state is not None and not torch.is_grad_enabled():
                state.mul_(0)
            return result

    assert failed_checks("update_rule", "mutating") == {"passed state is not modified"}


def test_rule_that_applies_the_padding_of_one_row_to_all_rows_fails():
    @register("update_rule", "first_row_mask")
    class FirstRowMask(Delta):
        def use_first_row(self, context, rows):
            if context.valid_mask is None:
                return context
            return context._replace(valid_mask=context.valid_mask[:1].expand(rows, -1))

        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates, state, self.use_first_row(context, len(q)))

        def reference(self, q, k, v, gates, state, context):
            return super().reference(q, k, v, gates, state, self.use_first_row(context, len(q)))

    failed = failed_checks("update_rule", "first_row_mask")
    assert "padding has no effect" in failed and "any split gives the same result" not in failed


def test_rule_that_ignores_document_starts_fails_packing():
    @register("update_rule", "ignores_documents")
    class IgnoresDocuments(Delta):
        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates, state, context._replace(doc_start=None))

        def reference(self, q, k, v, gates, state, context):
            return super().reference(q, k, v, gates, state, context._replace(doc_start=None))

    assert failed_checks("update_rule", "ignores_documents") == {"packed documents are independent"}


def test_scan_that_ignores_document_starts_differs_from_the_reference():
    @register("update_rule", "scan_ignores_documents")
    class ScanIgnoresDocuments(Delta):
        def scan(self, q, k, v, gates, state, context):
            return super().scan(q, k, v, gates, state, context._replace(doc_start=None))

    assert "scan equals the reference" in failed_checks("update_rule", "scan_ignores_documents")


def test_rule_that_keeps_a_hidden_state_fails_row_selection():
    @register("update_rule", "hidden_state")
    class HiddenState(Delta):
        last_state = None

        def scan(self, q, k, v, gates, state, context):
            use_given = state is None or self.last_state is None or len(self.last_state) != len(q)
            reads, self.last_state = super().scan(q, k, v, gates, state if use_given else self.last_state, context)
            return reads, self.last_state

    assert failed_checks("update_rule", "hidden_state") == {"rows can be selected"}


def test_rule_whose_state_is_larger_than_declared_fails():
    @register("update_rule", "undeclared_state")
    class UndeclaredState(LinearAttention):
        value_channels = Delta.value_channels

    report = check_component("update_rule", "undeclared_state", quick=True)
    # FLOPs of decoding are counted on a state of the declared size, which the rule cannot read
    assert [result.check for result in report.failures] == ["state is as large as declared", "can be used in a study"]
    assert "bytes are declared" in report.failures[0].detail


def test_rule_whose_state_is_a_view_of_a_larger_tensor_fails():
    @register("update_rule", "state_view")
    class StateView(Delta):
        def scan(self, q, k, v, gates, state, context):
            reads, state = super().scan(q, k, v, gates, state, context)
            return reads, torch.stack([state, state])[0]

    report = check_component("update_rule", "state_view", quick=True)
    assert [result.check for result in report.failures] == ["state is as large as declared"]
    assert "keeps a larger tensor in memory" in report.failures[0].detail


def test_rule_that_forgets_everything_at_some_tokens_conforms():
    """The log-keeps of minus infinity are in the states of delayed timings."""

    @register("update_rule", "forgets_everything")
    class ForgetsEverything(Delta):
        def gates(self, x):
            gates = super().gates(x)
            return gates._replace(log_keep=torch.where(gates.erase < 0.5, -torch.inf, -gates.erase))

    check_component("update_rule", "forgets_everything", quick=True).assert_passed()


def test_equal_infinities_are_close_and_different_ones_are_not():
    infinite = torch.tensor([-torch.inf, 1.0])
    assert_close("log_keep", infinite, infinite.clone())
    for other in ([torch.inf, 1.0], [0.0, 1.0], [-torch.inf, 1.1], [torch.nan, 1.0]):
        with pytest.raises(CheckFailed):
            assert_close("log_keep", torch.tensor(other), infinite)
        with pytest.raises(CheckFailed):
            assert_close("log_keep", infinite, torch.tensor(other))


def test_weights_drawn_only_in_the_constructor_fail():
    @register("update_rule", "drawn")
    class Drawn(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            torch.nn.init.uniform_(self.to_beta.weight, 5, 6)

    assert failed_checks("update_rule", "drawn") == {"own initialization is kept"}


def test_rule_with_positive_log_keep_fails():
    @register("update_rule", "growing")
    class Growing(GatedDelta):
        def gates(self, x):
            gates = super().gates(x)
            return gates._replace(log_keep=-gates.log_keep)

    assert "gates are in range" in failed_checks("update_rule", "growing")


def test_unused_parameter_fails():
    @register("update_rule", "unused_parameter")
    class UnusedParameter(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_nothing = torch.nn.Linear(width, heads, bias=False)

    report = check_component("update_rule", "unused_parameter", quick=True)
    assert [result.check for result in report.failures] == ["every parameter gets a gradient"]
    assert "to_nothing.weight gets no gradient" in report.failures[0].detail


def test_value_set_only_in_the_constructor_fails():
    @register("update_rule", "biased")
    class Biased(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_beta = torch.nn.Linear(width, heads)
            torch.nn.init.constant_(self.to_beta.bias, -3)

    report = check_component("update_rule", "biased", quick=True)
    assert [result.check for result in report.failures] == ["own initialization is kept"]
    assert "set it in reset_parameters()" in report.failures[0].detail


def test_value_set_in_reset_parameters_is_kept():
    @register("update_rule", "biased_by_reset")
    class BiasedByReset(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_beta = torch.nn.Linear(width, heads)
            self.reset_parameters()

        def reset_parameters(self):
            torch.nn.init.constant_(self.to_beta.bias, -3)

    model = ComponentCase("update_rule", "biased_by_reset").build_model()
    assert (model.memories[0].update_rule.to_beta.bias == -3).all()
    check_component("update_rule", "biased_by_reset", quick=True).assert_passed()


def test_timing_that_loses_tokens_fails():
    register("timing", "loses_tokens")(lambda: Schedule(delay=5, window=3))
    report = check_component("timing", "loses_tokens", quick=True)
    assert [result.check for result in report.failures] == ["memories cover the past"]
    assert report.failures[0].detail == "at token 3, token 0 is in neither memory."


@pytest.mark.parametrize(("delay", "overlap"), [(1, "at most 2 tokens"), (3, "at most 0 tokens")])
def test_timing_whose_memories_overlap_conforms_and_the_overlap_is_shown(delay, overlap):
    register("timing", "overlapping")(lambda: Schedule(delay=delay, window=3))
    report = check_component("timing", "overlapping", quick=True)
    assert report.passed
    assert next(r.detail for r in report.results if r.check == "memories may overlap").startswith(overlap)


def test_overlap_of_long_memories_is_counted_on_a_sequence_that_is_long_enough():
    register("timing", "overlapping")(lambda: Schedule(delay=20, window=32))
    report = check_component("timing", "overlapping", quick=True)
    assert next(r.detail for r in report.results if r.check == "memories may overlap").startswith("at most 12 tokens")


def windowed_timing(window: int = 64, delay: int = 32, hold: int | None = None) -> Schedule:
    return Schedule(window=window, delay=delay, hold=hold)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"window": 4, "delay": 2}),
        ({"delay": 2}, {"window": 3, "delay": 2}),
        ({"hold": 32}, {"window": 4, "delay": 2, "hold": 2}),
        ({"window": 5, "delay": 5}, {"window": 5, "delay": 5}),
        ({"window": 64, "delay": 80}, {"window": 64, "delay": 80}),  # loses tokens at any size
    ],
    ids=str,
)
def test_timing_is_shortened_together_with_its_other_lengths(given, expected):
    register("timing", "windowed")(windowed_timing)
    assert ComponentCase("timing", "windowed", given).spec == {"name": "windowed", **expected}


def test_timing_with_a_delay_of_half_a_window_conforms():
    register("timing", "windowed")(windowed_timing)
    check_component("timing", "windowed", quick=True).assert_passed()


def test_component_that_cannot_be_probed_or_counted_fails_the_study_integration_check():
    @register("update_rule", "uncountable")
    class Uncountable(Delta):
        def count_flops(self, q, k, v, gates, state, context):
            raise KeyError("flops")

    @register("mixer", "unweighted")
    class Unweighted(Mixer):
        def forward(self, x, fw, kv):
            return fw + kv

        def weights(self, x):
            if x.dtype == torch.float32:
                raise KeyError("weights")
            return 1.0, 1.0

    integration_check = {"can be used in a study"}
    assert failed_checks("update_rule", "uncountable") == failed_checks("mixer", "unweighted") == integration_check


def test_mixer_that_does_not_use_what_it_reads_fails():
    @register("mixer", "ignores_fw")
    class IgnoresFw(Mixer):
        def forward(self, x, fw, kv):
            return kv

    assert failed_checks("mixer", "ignores_fw") == {"every read memory is used"}


def test_mixer_whose_weights_do_not_match_its_forward_fails():
    @register("mixer", "wrong_weights")
    class WrongWeights(Mixer):
        def weights(self, x):
            return 2.0, 1.0

        def forward(self, x, fw, kv):
            return fw + kv

    assert failed_checks("mixer", "wrong_weights") == {"weights reproduce the output"}


def test_mixer_whose_contributions_do_not_match_its_forward_fails():
    @register("mixer", "wrong_contributions")
    class WrongContributions(Mixer):
        def contributions(self, x, fw, kv):
            return fw, 2 * kv

        def forward(self, x, fw, kv):
            return fw + kv

    assert failed_checks("mixer", "wrong_contributions") == {"weights reproduce the output"}


def test_mixer_that_is_not_a_weighted_sum_conforms_without_weights():
    @register("mixer", "product")
    class Product(Mixer):
        def forward(self, x, fw, kv):
            return fw * kv

    assert failed_checks("mixer", "product") == set()


def test_illegal_combinations_have_a_reason_and_are_not_failures():
    report = check_component("update_rule", "delta")
    illegal = [result for result in report.results if result.outcome == "illegal"]
    assert report.passed and "'delta' diverges unless keys are unit vectors" in illegal[0].detail


def test_assert_passed_lists_the_failed_checks():
    register("timing", "loses_tokens")(lambda: Schedule(delay=5, window=3))
    with pytest.raises(
        AssertionError,
        match=r"timing 'loses_tokens' fails its checks:\n  memories cover the past: at token 3, token 0",
    ):
        check_component("timing", "loses_tokens", quick=True).assert_passed()


def test_invalid_options_are_an_error_of_the_caller():
    with raises_issue("update_rule.max_beta", "out_of_range"):
        check_component("update_rule", {"name": "delta", "max_beta": 3})
    with raises_issue("kind", "kind_without_checks"):
        check_component("launcher", "local")


def test_component_without_any_legal_composition_does_not_pass_the_crossing_check():
    @register("mixer", "rejects_every_model")
    class RejectsEveryModel(Mixer):
        def __init__(self) -> None:
            raise ConfigError.at("", "other_error", "it fits nothing.")

    (result,) = run_check(combines_with_every_component, ComponentCase("mixer", "rejects_every_model", {}))
    assert (result.outcome, result.detail) == ("failed", "no combination can be built: it fits nothing.")
