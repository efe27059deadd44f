"""Parts that are broken on purpose fail the line of the kit that they should."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.kit import check_part
from hqlt_lab.check.subject import Subject
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.update_rules._base import StepRule
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.components.update_rules.gated_delta import GatedDelta
from hqlt_lab.components.update_rules.linear_attention import LinearAttention
from hqlt_lab.errors import ConfigError, RegistryError
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@pytest.fixture(autouse=True)
def clean_book():
    with lab.temporarily():
        yield


def failed_lines(kind, name):
    return {line.promise for line in check_part(kind, name, quick=True).failed}


def test_a_rule_that_looks_ahead_fails_causality():
    @register("update_rule", "prophet")
    class Prophet(Delta):
        def gates(self, x):
            return super().gates(x + x.mean(1, keepdim=True))

    failed = failed_lines("update_rule", "prophet")
    assert "reads only the past" in failed
    assert "scan is the reference" not in failed


def test_a_rule_whose_fast_form_fades_wrongly_fails_the_comparison():
    @register("update_rule", "hasty")
    class Hasty(GatedDelta):
        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v, gates._replace(log_keep=gates.log_keep * 0.9), state, course)

    assert failed_lines("update_rule", "hasty") == {"scan is the reference"}


def test_a_rule_that_forgets_between_calls_fails_streaming():
    @register("update_rule", "forgetful")
    class Forgetful(Delta):
        def reference(self, q, k, v, gates, state, course):
            return super().reference(q, k, v, gates, None, course)

        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v, gates, None, course)

    streamed = {"any split is the whole", "padding changes nothing", "documents are read as if alone"}
    assert failed_lines("update_rule", "forgetful") == streamed | {"rows can be selected"}


def test_a_rule_that_writes_what_is_not_there_fails_the_empty_memory():
    @register("update_rule", "hallucinating")
    class Hallucinating(StepRule):
        feature_map = "elu_plus_one"  # of a zero key it makes ones
        gates = Delta.gates

        def __init__(self, width, heads):
            super().__init__()
            self.to_beta, self.max_beta = torch.nn.Linear(width, heads), 1.0

        def step(self, state, k, v, gates):
            return state + gates.write[..., None, None] * k[..., :, None] * v[..., None, :]

        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v + 1, gates, state, course._replace(real=None))

    assert "an empty memory reads zero" in failed_lines("update_rule", "hallucinating")


def test_a_rule_that_does_not_know_hold_is_told():
    @register("update_rule", "impatient")
    class Impatient(Delta):
        def reference(self, q, k, v, gates, state, course):
            return super().reference(q, k, v, gates, state, course._replace(hold=None))

        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v, gates, state, course._replace(hold=None))

    assert "an empty memory reads zero" in failed_lines("update_rule", "impatient")


def test_a_rule_that_looks_at_other_rows_is_told():
    @register("update_rule", "nosy")
    class Nosy(Delta):
        def gates(self, x):
            return super().gates(x + x.mean(0, keepdim=True))

    assert "rows know nothing of each other" in failed_lines("update_rule", "nosy")


def test_a_rule_that_changes_the_state_it_was_given_is_told():
    @register("update_rule", "careless")
    class Careless(Delta):
        def scan(self, q, k, v, gates, state, course):
            done = super().scan(q, k, v, gates, state, course)
            if state is not None and not torch.is_grad_enabled():
                state.mul_(0)
            return done

    assert failed_lines("update_rule", "careless") == {"leaves the given state alone"}


def test_a_rule_that_takes_one_rows_padding_for_all_is_told():
    @register("update_rule", "uniform")
    class Uniform(Delta):
        def scan(self, q, k, v, gates, state, course):
            course = course._replace(real=None if course.real is None else course.real[:1].expand(len(q), -1))
            return super().scan(q, k, v, gates, state, course)

        def reference(self, q, k, v, gates, state, course):
            course = course._replace(real=None if course.real is None else course.real[:1].expand(len(q), -1))
            return super().reference(q, k, v, gates, state, course)

    failed = failed_lines("update_rule", "uniform")
    assert "padding changes nothing" in failed and "any split is the whole" not in failed


def test_a_rule_that_reads_on_into_the_next_document_is_told():
    @register("update_rule", "endless")
    class Endless(Delta):
        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v, gates, state, course._replace(starts=None))

        def reference(self, q, k, v, gates, state, course):
            return super().reference(q, k, v, gates, state, course._replace(starts=None))

    assert failed_lines("update_rule", "endless") == {"documents are read as if alone"}


def test_a_fast_form_that_reads_on_into_the_next_document_fails_the_comparison():
    @register("update_rule", "skimming")
    class Skimming(Delta):
        def scan(self, q, k, v, gates, state, course):
            return super().scan(q, k, v, gates, state, course._replace(starts=None))

    assert "scan is the reference" in failed_lines("update_rule", "skimming")


def test_a_rule_that_keeps_its_memory_to_itself_is_told():
    @register("update_rule", "secretive")
    class Secretive(Delta):
        kept = None

        def scan(self, q, k, v, gates, state, course):
            mine = state if state is None or self.kept is None or len(self.kept) != len(q) else self.kept
            read, self.kept = super().scan(q, k, v, gates, mine, course)
            return read, self.kept

    assert failed_lines("update_rule", "secretive") == {"rows can be selected"}


def test_a_rule_whose_memory_is_larger_than_it_declares_is_told():
    @register("update_rule", "hoarding")
    class Hoarding(LinearAttention):
        value_channels = Delta.value_channels

    report = check_part("update_rule", "hoarding", quick=True)
    assert [line.promise for line in report.failed] == ["state is as large as declared"]
    assert "bytes are declared" in report.failed[0].detail


def test_a_rule_whose_memory_keeps_a_whole_text_alive_is_told():
    @register("update_rule", "clinging")
    class Clinging(Delta):
        def scan(self, q, k, v, gates, state, course):
            read, state = super().scan(q, k, v, gates, state, course)
            return read, torch.stack([state, state])[0]

    report = check_part("update_rule", "clinging", quick=True)
    assert [line.promise for line in report.failed] == ["state is as large as declared"]
    assert "keeps all of it alive" in report.failed[0].detail


def test_weights_drawn_in_the_constructor_alone_are_told():
    @register("update_rule", "drawn")
    class Drawn(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            torch.nn.init.uniform_(self.to_beta.weight, 5, 6)

    assert failed_lines("update_rule", "drawn") == {"own initialisation survives"}


def test_a_rule_that_grows_by_itself_is_told():
    @register("update_rule", "growing")
    class Growing(GatedDelta):
        def gates(self, x):
            gates = super().gates(x)
            return gates._replace(log_keep=-gates.log_keep)

    assert "gates are in range" in failed_lines("update_rule", "growing")


def test_a_parameter_that_nobody_reads_is_told():
    @register("update_rule", "idle")
    class Idle(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_nothing = torch.nn.Linear(width, heads, bias=False)

    report = check_part("update_rule", "idle", quick=True)
    assert [line.promise for line in report.failed] == ["every parameter learns"]
    assert "to_nothing.weight gets no gradient" in report.failed[0].detail


def test_a_value_set_in_the_constructor_alone_is_told():
    @register("update_rule", "biased")
    class Biased(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_beta = torch.nn.Linear(width, heads)
            torch.nn.init.constant_(self.to_beta.bias, -3)

    report = check_part("update_rule", "biased", quick=True)
    assert [line.promise for line in report.failed] == ["own initialisation survives"]
    assert "set it in reset_parameters()" in report.failed[0].detail


def test_a_value_set_in_reset_parameters_survives():
    @register("update_rule", "biased_well")
    class BiasedWell(Delta):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.to_beta = torch.nn.Linear(width, heads)
            self.reset_parameters()

        def reset_parameters(self):
            torch.nn.init.constant_(self.to_beta.bias, -3)

    assert (Subject("update_rule", "biased_well").model().memories[0].update_rule.to_beta.bias == -3).all()
    check_part("update_rule", "biased_well", quick=True).assert_passed()


def test_a_timing_that_loses_tokens_is_told():
    register("timing", "leaky")(lambda: Schedule(delay=5, window=3))
    report = check_part("timing", "leaky", quick=True)
    assert [line.promise for line in report.failed] == ["together they hold the past"]
    assert report.failed[0].detail == "at token 3, token 0 is in neither memory."


def test_a_timing_that_holds_tokens_twice_is_told():
    register("timing", "greedy")(lambda: Schedule(delay=2, window=3))
    assert failed_lines("timing", "greedy") == {"delayed means once"}


def test_a_mixer_that_does_not_use_what_it_reads_is_told():
    @register("mixer", "deaf")
    class Deaf(Mixer):
        def forward(self, x, fw, kv):
            return kv

    assert failed_lines("mixer", "deaf") == {"mixes what it reads"}


def test_a_mixer_whose_weights_say_something_else_than_it_does_is_told():
    @register("mixer", "boastful")
    class Boastful(Mixer):
        def weights(self, x):
            return 2.0, 1.0

        def forward(self, x, fw, kv):
            return fw + kv

    assert failed_lines("mixer", "boastful") == {"weights explain the answer"}


def test_a_mixer_that_is_no_weighted_sum_conforms_without_weights():
    @register("mixer", "product")
    class Product(Mixer):
        def forward(self, x, fw, kv):
            return fw * kv

    assert failed_lines("mixer", "product") == set()


def test_illegal_pairs_are_shown_with_their_reason_and_do_not_fail():
    report = check_part("update_rule", "delta")
    illegal = [line for line in report.lines if line.outcome == "illegal"]
    assert report.passed and "'delta' diverges unless keys are unit vectors" in illegal[0].detail


def test_what_failed_is_listed_for_a_users_own_test():
    register("timing", "greedy")(lambda: Schedule(delay=2, window=3))
    with pytest.raises(
        AssertionError, match=r"timing 'greedy' does not conform:\n  delayed means once: at token 2, token 0"
    ):
        check_part("timing", "greedy", quick=True).assert_passed()


def test_options_that_the_part_refuses_are_the_callers_mistake():
    with pytest.raises(ConfigError, match=r"max_beta: a number in \(0, 2\] is needed"):
        check_part("update_rule", {"name": "delta", "max_beta": 3})
    with pytest.raises(RegistryError, match="it knows nothing of 'launcher'"):
        check_part("launcher", "local")
