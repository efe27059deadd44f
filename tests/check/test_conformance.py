"""Every registered component conforms, in every composition."""

from contextlib import suppress
from itertools import combinations, product

import pytest

from hqlt_lab.check import common_checks
from hqlt_lab.check.component_under_test import ComponentCase
from hqlt_lab.check.conformance import CHECKS_BY_KIND, check_component, run_check
from hqlt_lab.check.conformance_report import CheckResult
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import COMPONENT_KINDS
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.registry import available, parse_spec, register, temporary_components

COMPONENTS = [(kind, name) for kind in CHECKS_BY_KIND for name in available(kind)]
VARIANTS = [
    ("update_rule", {"name": "delta", "max_beta": 2}),
    ("update_rule", {"name": "linear_attention", "normalizer": "none"}),
    ("update_rule", {"name": "linear_attention", "normalizer": "heads"}),
    ("update_rule", {"name": "delta_product", "steps": 3, "max_beta": 2}),
    ("timing", {"name": "delayed_stream", "gates": "own", "window": 5}),
    ("feature_map", {"name": "taylor", "dim": 2}),
    ("feature_map", {"name": "dpfp", "nu": 2, "norm": "l2"}),
    ("feature_map", {"name": "dpfp", "nu": 3, "norm": "none"}),
    ("positions", {"name": "learned", "length": 200}),
]


@pytest.mark.parametrize(("kind", "spec"), COMPONENTS + VARIANTS, ids=str)
def test_every_registered_component_conforms(kind, spec):
    check_component(kind, spec, quick=True).assert_passed()


# every composition has exactly one update rule, so crossing the rules covers all compositions
@pytest.mark.parametrize(
    ("kind", "spec"), [component for component in COMPONENTS + VARIANTS if component[0] == "update_rule"], ids=str
)
def test_every_composition_streams_correctly_or_is_rejected(kind, spec):
    results = run_check(common_checks.combines_with_every_component, ComponentCase(kind, *parse_spec(kind, spec)))
    assert [result.detail for result in results if result.outcome == "failed"] == []


@pytest.mark.parametrize("rule", ["delta", "linear_attention", "kda"])
def test_every_legal_pair_of_other_components_is_combined_with_a_rule(rule):
    """Compare with all combinations of two components; the other kinds keep a component that every rule accepts."""
    models = ComponentCase("update_rule", rule).pairwise_models()
    combined = {
        pair
        for others, model in models
        if isinstance(model, SequenceModel)
        for pair in combinations(sorted((kind, spec["name"]) for kind, spec in others.items()), 2)
    }
    kinds = [kind for kind in COMPONENT_KINDS if kind != "update_rule"]
    for kind, other_kind in combinations(sorted(kinds), 2):
        for pair in product(available(kind), available(other_kind)):
            components = dict(zip((kind, other_kind), pair, strict=True))
            with suppress(ConfigError):
                ComponentCase("update_rule", rule).build_model(**components)
                assert tuple(components.items()) in combined


@pytest.mark.parametrize(("kind", "spec"), COMPONENTS, ids=str)
def test_every_component_compiles(kind, spec):
    assert run_check(common_checks.compiles, ComponentCase(kind, spec)) == [CheckResult("compiles", "passed")]


def test_rule_that_erases_without_requiring_unit_keys_fails():
    with temporary_components():

        @register("update_rule", "undeclared_unit_keys")
        class UndeclaredUnitKeys(Delta):
            needs_unit_keys = False

        (failure,) = check_component("update_rule", "undeclared_unit_keys", quick=True).failures
    assert failure.check == "gates are in range" and "needs_unit_keys = True" in failure.detail


def test_cause_of_several_failures_is_printed_once_with_its_line():
    with temporary_components():

        @register("update_rule", "raising")
        class Raising(Delta):
            def gates(self, x):
                raise KeyError("beta")

        report = check_component("update_rule", "raising", quick=True)
    *failures, usage = report.failures
    assert len(failures) > 10 and len({failure.detail for failure in failures}) == 1
    text = str(report)
    assert text.count("raised KeyError: 'beta' (test_conformance.py, line ") == 1
    assert text.count("same reason as: gates are in range") == len(failures) - 1
    # the message that `hqlt plan` prints, without the temporary file that the check wrote
    assert usage.check == "can be used in a study" and usage.detail.startswith("model.update_rule: ")
