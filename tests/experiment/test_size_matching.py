"""The `match` section solves a setting so that arms have equal size, and reports arms for which this fails."""

import json
import re

import jsonschema
import pytest
from omegaconf import OmegaConf

from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.json_schema import build_json_schema
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.size_matching import (
    SizedValue,
    count_size,
    match_arm,
    match_cells,
    solve_by_bisection,
    solve_linear,
)
from tests.issues import raises_issue
from tests.model.test_paper_sizes import CONFIGURATIONS

BASE = """
question: What matters?
task: {name: parity, train_length: [3, 20], test_length: [20, 40]}
model: {width: 32, heads: 2, layers: 2, mlp_width: 64, timing: {name: synchronous, window: 4}}
train: {steps: 10, batch_size: 8}
seeds: 2
"""


@pytest.fixture
def load_with(tmp_path):
    def load(more, *overrides, base=BASE, name="question.yaml"):
        (tmp_path / name).write_text(base + more)
        return load_experiment(tmp_path / name, overrides)

    return load


def cells(experiment):
    """Return one cell of each arm, by title."""
    return {arm.title: experiment.make_cell(arm, {}, 0) for arm in experiment.arms}


def test_vector_mixer_of_the_paper_is_matched_in_parameters(load_with):
    # the 340M model of the paper: width 1024, 24 layers; the gates of the vector mixer are 25M of 399M parameters
    base = BASE.replace("width: 32, heads: 2, layers: 2, mlp_width: 64", "width: 1024, heads: 8, layers: 24")
    cell = cells(load_with("cross: {model.mixer: [sum, vector]}\nmatch: parameters\n", base=base))
    reference, matched = (count_size(cell[f"base, mixer={name}"], "parameters") for name in ("sum", "vector"))
    unmatched = count_size(cell["base, mixer=vector"].replace_model_settings(mlp_width=None), "parameters")
    published = CONFIGURATIONS["sync 340M"][1] - CONFIGURATIONS["sync sum"][1]
    assert unmatched - reference == published == 25_165_824 and published > 0.07 * reference
    assert abs(matched - reference) <= 0.01 * reference
    assert cell["base, mixer=sum"].model["mlp_width"] is None
    assert cell["base, mixer=vector"].model["mlp_width"] % 16 == 0


@pytest.mark.parametrize("on", ["parameters", "flops"])
def test_every_arm_is_within_one_percent_of_the_first(load_with, on):
    experiment = load_with(
        f"arms: {{vector: {{}}, sum: {{model.mixer: sum}}, kv: {{model.mixer: kv_only}},"
        f" conv: {{model.short_conv: 4, model.output_gate: true}}}}\nmatch: {on}\n"
    )
    cell = cells(experiment)
    target = count_size(cell["vector"], on)
    assert cell["vector"] == experiment.make_unmatched_cell(experiment.arms[0], {}, 0)
    for arm in experiment.arms[1:]:
        match = match_arm(experiment, arm, {})
        size = count_size(cell[arm.title], on)
        assert match.residual == pytest.approx((size - target) / target, abs=1e-12) and abs(match.residual) <= 0.01
        assert cell[arm.title].model["mlp_width"] == match.value != 64 and match.to == "vector"
        assert str(match).startswith(f"mlp_width {match.value}, {on} ")
        assert abs(count_size(experiment.make_unmatched_cell(arm, {}, 0), on) - target) > 0.01 * target


def test_state_is_matched_by_width_with_even_channels_per_head(load_with):
    more = "arms: {hybrid: {}, kv: {model.mixer: kv_only}}\nmatch: {on: state, within: 0.1}\n"
    cell_by_arm = cells(load_with(more))
    state = {title: count_size(cell, "state") for title, cell in cell_by_arm.items()}
    assert cell_by_arm["kv"].model["width"] > 32 and cell_by_arm["kv"].model["width"] % 4 == 0
    assert abs(state["kv"] - state["hybrid"]) <= 0.1 * state["hybrid"]


@pytest.mark.parametrize("timing", ["{name: delayed_chunk}", "{name: delayed_stream, gates: own}"])
def test_state_of_a_timing_that_caches_gates_is_matched_with_each_gate_counted_once(load_with, timing):
    arms = f"arms: {{a: {{}}, b: {{model.timing: {timing[:-1]}, window: 4}}}}}}\n"
    experiment = load_with(f"{arms}match: {{on: state, within: 0.02}}\n")
    match = match_arm(experiment, experiment.arms[1], {})
    # a: 2 layers with 8 + 4 bytes * (4 * 2 * 32 + 32 * 16) = 3080; b caches beta of 2 heads for 4 tokens: 4 * 2 * 4
    assert match.value == 32 and match.residual == pytest.approx(32 / 3080, abs=1e-12)


def test_parameters_can_be_matched_by_width(load_with):
    more = "arms: {vector: {}, sum: {model.mixer: sum}}\nmatch: {on: parameters, by: width, within: 0.05}\n"
    cell = cells(load_with(more, base=BASE.replace("width: 32", "width: 64")))
    assert cell["sum"].model["width"] > 64 and cell["sum"].model["mlp_width"] == 64


def test_arm_of_the_same_size_is_not_changed(load_with):
    more = "arms: {a: {}, b: {model.positions: none}, c: {model.timing.name: delayed_stream}}\n"
    unmatched, matched = (
        [planned.key for planned in expand_plan(load_with(more + line, base=BASE.replace("mlp_width: 64, ", "")))]
        for line in ("", "match: parameters\n")
    )
    assert unmatched == matched


def test_each_crossed_size_has_its_own_reference(load_with):
    experiment = load_with(
        "arms: {a: {}, b: {model.positions: none}}\n"
        "cross: {model.width: [32, 64], model.mixer: [sum, vector], train.lr: [0.1, 0.2]}\nmatch: parameters\n"
    )
    reference = {arm.title: experiment.reference_arms[arm.title].title for arm in experiment.arms}
    assert reference["b, width=64, mixer=vector, lr=0.2"] == "a, width=64, mixer=sum, lr=0.2"
    assert reference["a, width=32, mixer=vector, lr=0.1"] == "a, width=32, mixer=sum, lr=0.1"
    assert sum(arm.title == reference[arm.title] for arm in experiment.arms) == 4
    sizes = {title: count_size(cell, "parameters") for title, cell in cells(experiment).items()}
    assert all(abs(sizes[arm] - sizes[other]) <= 0.01 * sizes[other] for arm, other in reference.items())


def test_each_one_at_a_time_size_has_its_own_reference(load_with):
    experiment = load_with("one_at_a_time: {model.layers: [4], model.mixer: [sum]}\nmatch: parameters\n")
    assert [experiment.reference_arms[arm.title].title for arm in experiment.arms] == ["base", "base, layers=4", "base"]


def test_every_tuned_point_is_matched(load_with):
    tune = "tune: {model.output_gate: [false, true]}\n"
    experiment = load_with("cross: {model.mixer: [vector, sum]}\nmatch: parameters\n" + tune)
    planned_cells = [planned.cell for planned in expand_plan(experiment) if planned.cell.seed == 0]
    matches = list(match_cells(experiment, planned_cells))
    assert matches[:2] == [None, None] and all(abs(match.residual) <= 0.01 for match in matches[2:])
    sizes = [count_size(cell, "parameters") for cell in planned_cells]
    assert sizes[1] > 1.05 * sizes[0] and sizes[3] == pytest.approx(sizes[1], rel=0.01)


def test_each_composition_is_solved_only_once(load_with):
    experiment = load_with(
        "cross: {model.mixer: [vector, sum]}\nmatch: parameters\ntune: {train.lr: [0.1, 0.2, 0.3]}\n"
    )
    matches = list(match_cells(experiment, [planned.cell for planned in expand_plan(experiment)]))
    assert len(matches) == 12 and len({id(match) for match in matches}) == 2 and matches[:6] == [None] * 6


def test_solved_setting_is_in_the_key_and_in_the_stored_cell(load_with):
    arms = "arms: {a: {}, b: {model.mixer: sum}}\n"
    unmatched, matched = (cells(load_with(arms + line))["b"] for line in ("", "match: {on: parameters}\n"))
    assert cell_key(unmatched) != cell_key(matched)
    assert cell_from_dict(json.loads(json.dumps(matched.to_dict()))) == matched and matched.model["mlp_width"] > 64


def test_match_section_can_be_set_extended_and_removed(load_with):
    arms = "arms: {a: {}, b: {model.mixer: sum}}\n"
    assert load_with(arms, "match=parameters").match.on == "parameters"
    assert load_with(arms + "match: flops\n", "match={on: parameters, within: 0.02}").match.within == 0.02
    assert load_with(arms + "match: {on: parameters}\n", "match.within=0.03").match.within == 0.03
    assert load_with("extends: question.yaml\n", base="", name="more.yaml").match.on == "parameters"
    assert load_with("extends: question.yaml\nmatch: null\n", base="", name="less.yaml").match is None


MISTAKES = {
    "match: paramters": ("match", "unknown_match_choice"),
    "match: {on: parameters, by: mlpwidth}": ("match.by", "unknown_match_choice"),
    "match: {by: width}": ("match", "not_a_match"),
    "match: [parameters]": ("match", "not_a_match"),
    "match: {on: state, by: mlp_width}": ("match.by", "match_has_no_effect"),
    "match: {on: flops, within: 2}": ("match.within", "out_of_range"),
    "match: {on: flops, whithin: 0.1}": ("match.whithin", "unknown_setting"),
    "match: {on: parameters, within: 1e-9}": ("match", "no_match_within_tolerance"),
    "match: parameters\ntune: {model.mlp_width: [32, 64]}": ("tune.model.mlp_width", "setting_solved_by_match"),
    "match: parameters\ncross: {model.mlp_width: [32, 64]}": ("cross.model.mlp_width", "setting_solved_by_match"),
    "match: parameters\none_at_a_time: {model.mlp_width: [32]}": (
        "one_at_a_time.model.mlp_width",
        "setting_solved_by_match",
    ),
    "match: {on: parameters, by: width}\ncross: {model.width: [32, 64]}": (
        "cross.model.width",
        "setting_solved_by_match",
    ),
    "match: parameters\npublished: {}\ntrainer: {devices: '${model.mlp_width}'}": (
        "match",
        "reference_to_solved_setting",
    ),
}


@pytest.mark.parametrize("section", MISTAKES)
def test_mistake_is_reported_with_a_remedy(load_with, section):
    with raises_issue(*MISTAKES[section]):
        load_with(f"arms: {{a: {{}}, b: {{model.mixer: sum}}}}\n{section}\n")


def test_state_that_cannot_be_matched_is_reported_with_the_nearest_width(load_with):
    with raises_issue("match", "no_match_within_tolerance") as error:
        load_with("arms: {a: {}, b: {model.mixer: kv_only, model.timing.window: 5}}\nmatch: state\n")
    (issue,) = error.value.issues
    assert issue.arms == ("b",)
    # a: 2 layers with 8 + 4 bytes * (4 * 2 * 32 + 32 * 16); b: 8 + 4 bytes * 5 * 2 * 76, since 77 is not even per head
    assert {"76", "6096", "6160"} <= set(re.findall(r"\d+", issue.message))


def test_arm_cannot_set_the_solved_setting(load_with):
    for changes in ("model.mlp_width: 32", "model: {mlp_width: 32}"):
        with raises_issue("arms.b.model.mlp_width", "setting_solved_by_match"):
            load_with(f"arms: {{a: {{}}, b: {{{changes}}}}}\nmatch: parameters\n")


def test_schema_checks_the_match_section():
    def is_valid(text):
        config = {"match": OmegaConf.to_container(OmegaConf.create(text))["match"]}
        return jsonschema.Draft202012Validator(build_json_schema()).is_valid(config)

    assert all(
        is_valid(text) for text in ("match: state", "match: null", "match: {'on': flops, by: width, within: 0.1}")
    )
    assert not any(is_valid(text) for text in ("match: size", "match: {by: width}", "match: {'on': flops, to: a}"))


def test_linear_solution_is_a_multiple_of_16_if_that_is_within_tolerance():
    start = SizedValue(100, 2000)  # size 1000, and 10 more per unit
    assert solve_linear(start, 10, 5210, 0.02) == (416, 5160)
    assert solve_linear(start, 10, 5210, 0.001) == (421, 5210)
    assert solve_linear(start, 10, 500, 0.01) == (1, 1010)  # the smallest value is still too large
    assert solve_linear(start, 10, 2010, 0.01) == start  # 96 and 112 are farther from the target


def test_bisection_finds_the_nearest_multiple_above_and_below():
    for target, value in ((5000, 72), (4097, 64), (4096, 64), (10, 4), (10**6, 1000)):
        assert solve_by_bisection(lambda v: v * v, SizedValue(60, 3600), target, 4) == (value, value**2)
    assert solve_by_bisection(lambda v: v * v, SizedValue(66, 66**2), 66**2 + 9, 4) == (66, 66**2)
    assert solve_by_bisection(lambda v: 7, SizedValue(64, 7), 8, 4) is None
