"""Arms of equal size: what is solved, to whom, and what is said where that cannot be."""

import json

import jsonschema
import pytest
from omegaconf import OmegaConf

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.json_schema import json_schema
from hqlt_lab.experiment.matched import matched, matches, size_of
from hqlt_lab.experiment.plan import key_of, plan
from hqlt_lab.experiment.solve import Found, by_halving, on_a_line
from tests.model.test_paper_sizes import CONFIGURATIONS

BASE = """
question: What matters?
task: {name: parity, train_length: [3, 20], test_length: [20, 40]}
model: {width: 32, heads: 2, layers: 2, mlp_width: 64, timing: {name: synchronous, window: 4}}
train: {steps: 10, batch_size: 8}
seeds: 2
"""


@pytest.fixture
def asked(tmp_path):
    def load_with(more, *overrides, base=BASE, name="question.yaml"):
        (tmp_path / name).write_text(base + more)
        return load(tmp_path / name, overrides)

    return load_with


def cells(experiment):
    """One of each arm, by title."""
    return {arm.title: experiment.cell(arm, {}, 0) for arm in experiment.arms}


def test_the_papers_vector_mixer_is_matched_in_one_line(asked):
    # 340M of the paper: width 1024, 24 layers; the gates of the vector mixer are 25M of its 399M parameters
    base = BASE.replace("width: 32, heads: 2, layers: 2, mlp_width: 64", "width: 1024, heads: 8, layers: 24")
    made = cells(asked("cross: {model.mixer: [sum, vector]}\nmatch: parameters\n", base=base))
    total, fair = (size_of(made[f"base, mixer={name}"], "parameters") for name in ("sum", "vector"))
    unfair = size_of(made["base, mixer=vector"].with_model(mlp_width=None), "parameters")
    published = CONFIGURATIONS["sync 340M"][1] - CONFIGURATIONS["sync sum"][1]
    assert unfair - total == published == 25_165_824 and published > 0.07 * total
    assert abs(fair - total) <= 0.01 * total
    assert made["base, mixer=sum"].model["mlp_width"] is None
    assert made["base, mixer=vector"].model["mlp_width"] % 16 == 0


@pytest.mark.parametrize("on", ["parameters", "flops"])
def test_every_arm_comes_within_a_hundredth_of_the_first(asked, on):
    experiment = asked(
        f"arms: {{vector: {{}}, sum: {{model.mixer: sum}}, kv: {{model.mixer: kv_only}},"
        f" conv: {{model.short_conv: 4, model.output_gate: true}}}}\nmatch: {on}\n"
    )
    made = cells(experiment)
    wanted = size_of(made["vector"], on)
    assert made["vector"] == experiment.as_written(experiment.arms[0], {}, 0)
    for arm in experiment.arms[1:]:
        found = matched(experiment, arm, {})
        size = size_of(made[arm.title], on)
        assert found.residual == pytest.approx((size - wanted) / wanted, abs=1e-12) and abs(found.residual) <= 0.01
        assert made[arm.title].model["mlp_width"] == found.value != 64 and found.to == "vector"
        assert str(found).startswith(f"mlp_width {found.value}, {on} ")
        assert abs(size_of(experiment.as_written(arm, {}, 0), on) - wanted) > 0.01 * wanted


def test_state_is_matched_by_the_width_in_steps_that_rope_can_turn(asked):
    more = "arms: {hybrid: {}, kv: {model.mixer: kv_only}}\nmatch: {on: state, within: 0.1}\n"
    made = cells(asked(more))
    state = {title: size_of(cell, "state") for title, cell in made.items()}
    assert made["kv"].model["width"] > 32 and made["kv"].model["width"] % 4 == 0
    assert abs(state["kv"] - state["hybrid"]) <= 0.1 * state["hybrid"]


def test_the_width_can_be_what_is_solved(asked):
    more = "arms: {vector: {}, sum: {model.mixer: sum}}\nmatch: {on: parameters, by: width, within: 0.05}\n"
    made = cells(asked(more, base=BASE.replace("width: 32", "width: 64")))
    assert made["sum"].model["width"] > 64 and made["sum"].model["mlp_width"] == 64


def test_an_arm_of_the_same_size_stays_as_written(asked):
    more = "arms: {a: {}, b: {model.positions: none}, c: {model.timing.name: delayed_stream}}\n"
    plain, fair = (
        [one.key for one in plan(asked(more + line, base=BASE.replace("mlp_width: 64, ", "")))]
        for line in ("", "match: parameters\n")
    )
    assert plain == fair


def test_crossed_sizes_and_tasks_have_references_of_their_own(asked):
    experiment = asked(
        "arms: {a: {}, b: {model.positions: none}}\n"
        "cross: {model.width: [32, 64], model.mixer: [sum, vector], train.lr: [0.1, 0.2]}\nmatch: parameters\n"
    )
    titles = {arm.title: experiment.references[arm.title].title for arm in experiment.arms}
    assert titles["b, width=64, mixer=vector, lr=0.2"] == "a, width=64, mixer=sum, lr=0.2"
    assert titles["a, width=32, mixer=vector, lr=0.1"] == "a, width=32, mixer=sum, lr=0.1"
    assert sum(arm.title == titles[arm.title] for arm in experiment.arms) == 4
    sizes = {title: size_of(cell, "parameters") for title, cell in cells(experiment).items()}
    assert all(abs(sizes[arm] - sizes[to]) <= 0.01 * sizes[to] for arm, to in titles.items())


def test_one_at_a_time_sizes_are_references_too(asked):
    experiment = asked("one_at_a_time: {model.layers: [4], model.mixer: [sum]}\nmatch: parameters\n")
    assert [experiment.references[arm.title].title for arm in experiment.arms] == ["base", "base, layers=4", "base"]


def test_what_is_tuned_is_matched_at_every_point(asked):
    tune = "tune: {model.output_gate: [false, true]}\n"
    experiment = asked("cross: {model.mixer: [vector, sum]}\nmatch: parameters\n" + tune)
    planned = [one.cell for one in plan(experiment) if one.cell.seed == 0]
    found = list(matches(experiment, planned))
    assert found[:2] == [None, None] and all(abs(one.residual) <= 0.01 for one in found[2:])
    sizes = [size_of(cell, "parameters") for cell in planned]
    assert sizes[1] > 1.05 * sizes[0] and sizes[3] == pytest.approx(sizes[1], rel=0.01)


def test_a_composition_is_solved_once_however_often_it_is_trained(asked):
    experiment = asked("cross: {model.mixer: [vector, sum]}\nmatch: parameters\ntune: {train.lr: [0.1, 0.2, 0.3]}\n")
    found = list(matches(experiment, [one.cell for one in plan(experiment)]))
    assert len(found) == 12 and len({id(one) for one in found}) == 2 and found[:6] == [None] * 6


def test_what_is_solved_is_stored_named_and_rebuilt(asked):
    plain, fair = (asked("arms: {a: {}, b: {model.mixer: sum}}\n" + line) for line in ("", "match: {on: parameters}\n"))
    before, after = (cells(experiment)["b"] for experiment in (plain, fair))
    assert key_of(before) != key_of(after)
    assert cell_from(json.loads(json.dumps(after.as_dict()))) == after and after.model["mlp_width"] > 64


def test_the_section_is_set_extended_and_taken_back(asked, tmp_path):
    arms = "arms: {a: {}, b: {model.mixer: sum}}\n"
    assert asked(arms, "match=parameters").match.on == "parameters"
    assert asked(arms + "match: flops\n", "match={on: parameters, within: 0.02}").match.within == 0.02
    assert asked(arms + "match: {on: parameters}\n", "match.within=0.03").match.within == 0.03
    assert asked("extends: question.yaml\n", base="", name="more.yaml").match.on == "parameters"
    assert asked("extends: question.yaml\nmatch: null\n", base="", name="less.yaml").match is None


MISTAKES = {
    "match: paramters": "match: 'paramters' cannot be matched on. Did you mean 'parameters'? There is: parame",
    "match: {on: parameters, by: mlpwidth}": "match.by: 'mlpwidth' cannot be matched by. Did you mean 'mlp_width'?",
    "match: {by: width}": "match: one of parameters, state, flops is needed, or {on: parameters, by: mlp_width,",
    "match: [parameters]": "match: one of parameters, state, flops is needed",
    "match: {on: state, by: mlp_width}": "match.by: the state does not depend on mlp_width. Use width.",
    "match: {on: flops, within: 2}": "match.within: a fraction between 0 and 1 is needed, such as 0.01; got 2.",
    "match: {on: flops, whithin: 0.1}": "match.whithin: there is no such setting. Did you mean 'within'?",
    "match: {on: parameters, within: 1e-9}": (
        "arm 'b': match: with mlp_width 75, the nearest, it has 23104 parameters and 'a' has 23040: +0.28 %, and "
        "1e-07 % are allowed. Raise match.within or use a larger model, or match by: width."
    ),
    "match: parameters\ntune: {model.mlp_width: [32, 64]}": "tune.model.mlp_width: match solves it for every arm",
    "match: parameters\ncross: {model.mlp_width: [32, 64]}": "cross.model.mlp_width: match solves it for every arm",
    "match: parameters\none_at_a_time: {model.mlp_width: [32]}": "one_at_a_time.model.mlp_width: match solves it",
    "match: {on: parameters, by: width}\ncross: {model.width: [32, 64]}": "or match by: mlp_width.",
    "match: parameters\npublished: {}\ntrainer: {devices: '${model.mlp_width}'}": "some setting follows ${model.mlp_w",
}


@pytest.mark.parametrize("section", MISTAKES)
def test_a_mistake_is_told_with_what_to_do(asked, section):
    with pytest.raises(ConfigError) as told:
        asked(f"arms: {{a: {{}}, b: {{model.mixer: sum}}}}\n{section}\n")
    assert MISTAKES[section] in str(told.value)


def test_a_state_that_cannot_be_met_is_told_with_the_nearest(asked):
    with pytest.raises(ConfigError) as told:
        asked("arms: {a: {}, b: {model.mixer: kv_only, model.timing.window: 5}}\nmatch: state\n")
    # a: 2 layers of 8 + 4 bytes * (4 * 2 * 32 + 32 * 16);  b: of 8 + 4 bytes * 5 * 2 * 76, 77 is not even per head
    assert "arm 'b': match: with width 76, the nearest, it has 6096 state bytes and 'a' has 6160" in str(told.value)
    assert str(told.value).endswith("1 % are allowed. Raise match.within or use a larger model.")


def test_an_arm_cannot_set_what_is_solved(asked):
    for changes in ("model.mlp_width: 32", "model: {mlp_width: 32}"):
        with pytest.raises(ConfigError, match=r"arms\.b\.model\.mlp_width: match solves it for every arm"):
            asked(f"arms: {{a: {{}}, b: {{{changes}}}}}\nmatch: parameters\n")


def test_editors_know_the_section():
    def fits(text):
        told = {"match": OmegaConf.to_container(OmegaConf.create(text))["match"]}
        return jsonschema.Draft202012Validator(json_schema()).is_valid(told)

    assert all(fits(text) for text in ("match: state", "match: null", "match: {'on': flops, by: width, within: 0.1}"))
    assert not any(fits(text) for text in ("match: size", "match: {by: width}", "match: {'on': flops, to: a}"))


def test_a_line_is_solved_in_sixteens_where_that_is_near_enough():
    written = Found(100, 2000)  # 1000 and 10 more for each
    assert on_a_line(written, 10, 5210, 0.02) == (416, 5160)
    assert on_a_line(written, 10, 5210, 0.001) == (421, 5210)
    assert on_a_line(written, 10, 500, 0.01) == (1, 1010)  # not even the smallest is small enough
    assert on_a_line(written, 10, 2010, 0.01) == written  # 96 and 112 are farther off than it is


def test_what_grows_is_halved_up_and_down():
    for wanted, found in ((5000, 72), (4097, 64), (4096, 64), (10, 4), (10**6, 1000)):
        assert by_halving(lambda value: value * value, Found(60, 3600), wanted, 4) == (found, found**2)
    assert by_halving(lambda value: value * value, Found(66, 66**2), 66**2 + 9, 4) == (66, 66**2)
    assert by_halving(lambda value: 7, Found(64, 7), 8, 4) is None
