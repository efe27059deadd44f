"""Every registered component conforms, in every composition."""

import math
from itertools import combinations

import pytest

from hqlt_lab.check import common_checks
from hqlt_lab.check.component_under_test import ComponentCase
from hqlt_lab.check.conformance import CHECKS_BY_KIND, check_component, run_check
from hqlt_lab.check.conformance_report import CheckResult
from hqlt_lab.components.update_rules.delta import Delta
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
    num_others = [len(available(other_kind)) for other_kind in CHECKS_BY_KIND if other_kind != kind]
    legal = next(result.detail for result in results if result.outcome == "passed")
    num_run, num_legal = (int(word) for word in legal.split()[0:3:2])
    num_illegal = sum(int(result.detail.split()[0]) for result in results if result.outcome == "illegal")
    assert num_legal + num_illegal == math.prod(num_others) and 0 < num_run <= num_legal


def test_every_pair_of_other_components_is_run_with_the_component(monkeypatch):
    run_pairs, legal_pairs, build_model = set(), set(), ComponentCase.build_model

    def record_legal(case, **others):
        model = build_model(case, **others)
        record_legal.others = {(kind, spec["name"]) for kind, spec in others.items()}
        legal_pairs.update(combinations(sorted(record_legal.others), 2))
        return model

    def record_run(model, prefix, splits):
        run_pairs.update(combinations(sorted(record_legal.others), 2))

    monkeypatch.setattr(ComponentCase, "build_model", record_legal)
    monkeypatch.setattr(common_checks, "assert_streaming_equals_one_pass", record_run)
    monkeypatch.setattr(common_checks, "assert_matches_separate_documents", lambda *arguments: None)
    (passed, *_) = run_check(common_checks.combines_with_every_component, ComponentCase("update_rule", "delta"))
    assert passed.outcome == "passed" and run_pairs == legal_pairs and len(run_pairs) > 50


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
