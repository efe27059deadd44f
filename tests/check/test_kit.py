"""Every registered part conforms, in every composition."""

import math

import pytest

from hqlt_lab.check import for_all
from hqlt_lab.check.kit import OF_ITS_KIND, check_part, outcome
from hqlt_lab.check.report import Line
from hqlt_lab.check.subject import Subject
from hqlt_lab.components.update_rules.delta import Delta
from hqlt_lab.registry import available, register, split, temporarily

PARTS = [(kind, name) for kind in OF_ITS_KIND for name in available(kind)]
VARIANTS = [
    ("update_rule", {"name": "delta", "max_beta": 2}),
    ("update_rule", {"name": "linear_attention", "normaliser": "none"}),
    ("update_rule", {"name": "linear_attention", "normaliser": "heads"}),
    ("update_rule", {"name": "delta_product", "steps": 3, "max_beta": 2}),
    ("timing", {"name": "delayed_stream", "gates": "travel", "window": 5}),
]


@pytest.mark.parametrize(("kind", "spec"), PARTS + VARIANTS, ids=str)
def test_every_registered_part_conforms(kind, spec):
    check_part(kind, spec, quick=True).assert_passed()


# every composition has one rule, so crossing the rules is crossing everything
@pytest.mark.parametrize(("kind", "spec"), [part for part in PARTS + VARIANTS if part[0] == "update_rule"], ids=str)
def test_every_composition_streams_like_a_whole_or_is_refused(kind, spec):
    lines = outcome(for_all.crosses_with_every_part, Subject(kind, *split(kind, spec)))
    assert [line.detail for line in lines if line.outcome == "failed"] == []
    others = [len(available(other)) for other in OF_ITS_KIND if other != kind]
    assert sum(int(line.detail.split()[0]) for line in lines) == math.prod(others)


@pytest.mark.parametrize(("kind", "spec"), PARTS, ids=str)
def test_every_part_compiles(kind, spec):
    assert outcome(for_all.compiles, Subject(kind, spec)) == [Line("compiles", "passed")]


def test_a_rule_that_erases_and_does_not_ask_for_unit_keys_is_told():
    with temporarily():

        @register("update_rule", "careless")
        class Careless(Delta):
            needs_unit_keys = False

        failed = check_part("update_rule", "careless", quick=True).failed
    assert [line.promise for line in failed] == ["gates are in range"] and "needs_unit_keys = True" in failed[0].detail


def test_a_cause_that_breaks_several_promises_is_told_once_with_its_line():
    with temporarily():

        @register("update_rule", "raising")
        class Raising(Delta):
            def gates(self, x):
                raise KeyError("beta")

        report = check_part("update_rule", "raising", quick=True)
    assert len(report.failed) > 10 and len({line.detail for line in report.failed}) == 1
    told = str(report)
    assert told.count("it raised KeyError: 'beta' (test_kit.py, line ") == 1
    assert told.count("for the same reason as: gates are in range") == len(report.failed) - 1
