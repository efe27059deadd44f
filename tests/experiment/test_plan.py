"""From a file to cells: arms, axes, points, seeds; their settings and their keys."""

import json
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest
from omegaconf import OmegaConf

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.json_schema import json_schema
from hqlt_lab.experiment.plan import chosen, key_of, plan
from hqlt_lab.experiment.tune import Range

BASE = """
question: What matters?
task: {name: parity, train_length: [3, 20], test_length: [20, 40]}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 10, batch_size: 8}
"""


@pytest.fixture
def written(tmp_path):
    def write(more="", name="question.yaml", base=BASE):
        (tmp_path / name).write_text(base + more)
        return tmp_path / name

    return write


def cells(experiment):
    return [planned.cell for planned in plan(experiment)]


def test_arms_times_axes_times_points_times_seeds(written):
    file = written(
        "arms: {a: {}, b: {model.positions: none}}\ncross: {model.mixer: [sum, vector], model.timing.window: [4, 8]}\n"
        "tune: {train.lr: [1e-3, 1e-4]}\nseeds: [3, 5]\n"
    )
    made = cells(load(file))
    assert len(made) == 2 * 4 * 2 * 2
    assert made[0].arm == "a, mixer=sum, window=4" and made[-1].arm == "b, mixer=vector, window=8"
    assert made[-1].axes == {"model.mixer": "vector", "model.timing.window": 8, "train.lr": 1e-4}
    assert made[-1].model["mixer"] == {"name": "vector"} and made[-1].model["timing"]["window"] == 8
    assert made[-1].train.lr == 1e-4 and made[-1].seed == 5
    assert len({planned.key for planned in plan(load(file))}) == 32


def test_a_backend_that_is_asked_for_makes_another_cell(written):
    made = cells(load(written("arms: {a: {}, b: {ops.scan: recurrent}}\nops: {attention: auto}\nseeds: 1\n")))
    assert [cell.ops.scan for cell in made] == ["auto", "recurrent"] and key_of(made[0]) != key_of(made[1])
    assert key_of(made[0]) == key_of(cells(load(written("seeds: 1\n")))[0])
    with pytest.raises(ConfigError, match=r"ops\.scan"):
        load(written("ops: {scan: fals}\n"))


def test_without_arms_there_is_one(written):
    assert [cell.arm for cell in cells(load(written("seeds: 1\n")))] == ["base"]


def test_one_at_a_time_changes_one_axis_each(written):
    file = written("one_at_a_time: {model.mixer: [sum, scalar], model.positions: [none]}\nseeds: 1\n")
    assert [cell.arm for cell in cells(load(file))] == [
        "base",
        "base, mixer=sum",
        "base, mixer=scalar",
        "base, positions=none",
    ]


def test_axis_values_may_be_whole_parts(written):
    file = written("cross: {model.update_rule: [linear_attention, {name: delta, max_beta: 2}]}\nseeds: 1\n")
    first, second = cells(load(file))
    assert first.model["update_rule"] == {"name": "linear_attention", "normaliser": "time"}
    assert second.arm == "base, update_rule=delta(max_beta=2)" and second.model["update_rule"]["max_beta"] == 2


def test_setting_a_part_replaces_it_and_setting_its_name_keeps_its_options(written):
    file = written(
        "arms:\n  kept: {model.timing.name: delayed_stream}\n"
        "  replaced: {model.timing: {name: delayed_chunk, window: 5}}\n"
        "  bare: {model.update_rule.max_beta: 2}\nseeds: 1\n"
    )
    kept, replaced, bare = cells(load(file))
    assert kept.model["timing"] == {"name": "delayed_stream", "window": 4, "gates": "current"}
    assert replaced.model["timing"] == {"name": "delayed_chunk", "window": 5, "hold": None}
    assert bare.model["update_rule"] == {"name": "delta", "max_beta": 2}


def test_a_range_is_kept_for_the_search(written):
    experiment = load(written("tune: {train.lr: {low: 1e-4, high: 1e-2, log: true, trials: 7}}\n"))
    assert experiment.tune["train.lr"] == Range(low=1e-4, high=1e-2, log=True, trials=7)
    assert len(cells(experiment)) == 3


def test_overrides_and_arms_reach_interpolated_values(written):
    """A value that refers to another follows it, also when an arm or the command line changes that one."""
    file = written(
        "  lr_horizon: ${train.steps}\narms: {short: {}, long: {train.steps: 40}}\nseeds: 1\n",
        base=BASE.replace("train: {steps: 10, batch_size: 8}", "train:\n  steps: 10\n  batch_size: 8"),
    )
    assert [cell.train.lr_horizon for cell in cells(load(file))] == [10, 40]
    assert [cell.train.lr_horizon for cell in cells(load(file, ["train.steps=20"]))] == [20, 40]


def test_a_file_can_extend_another(written):
    written("arms: {a: {}, b: {model.mixer: sum}}\n", "other.yaml")
    file = written(
        "extends: other.yaml\nmodel: {timing: {name: delayed_stream, window: 5}, width: 32, layers: 2}\n"
        "task: {name: parity}\n"
        "train: {lr: 0.5}\nseeds: 1\n",
        base="",
    )
    one, other = cells(load(file))
    assert one.train.steps == 10 and one.train.lr == 0.5
    assert one.model["timing"]["window"] == 5 and one.model["heads"] == 2 and one.model["width"] == 32
    assert one.task["train_length"] == [3, 40], "a part replaces a part"
    assert other.model["mixer"] == {"name": "sum"}


def test_a_file_that_extends_itself_is_told(written):
    written("extends: question.yaml\n", "other.yaml")
    with pytest.raises(ConfigError, match=r"extends itself, by way of question\.yaml -> other\.yaml"):
        load(written("extends: other.yaml\n"))


def test_a_stored_cell_is_the_same_cell(written):
    for planned in plan(load(written("arms: {a: {}, b: {model.mixer: [sum, kv_only]}}\nseeds: 1\n"))):
        stored = json.loads(json.dumps(planned.cell.as_dict()))
        assert cell_from(stored) == planned.cell and key_of(cell_from(stored)) == planned.key


def key(file, *overrides):
    return plan(load(file, overrides))[0].key


@pytest.mark.parametrize(
    "override",
    [
        "task.data_seed=1",
        "model.width=32",
        "model.update_rule.max_beta=2",
        "train.lr=0.1",
        "train.steps=11",
        "seeds=[7]",
        "train.batch_size=16",
        "trainer.precision='64'",
        "train.clip=null",
    ],
)
def test_the_key_changes_with_what_can_change_the_result(written, override):
    file = written()
    assert key(file, override) != key(file)


@pytest.mark.parametrize(
    "override",
    [
        "question=Why?",
        "trainer.devices=4",
        "train.accumulate=2",
        "train.keep=none",
        "train.checkpoint_every=3",
        "train.log_every=1",
        "model.update_rule={name: delta, max_beta: 1.0}",
        "model.norm=rms",
        "model.timing={window: 4, name: synchronous}",
        "measure.select=valid/accuracy",
        "model.mixer=[vector, vector]",
    ],
)
def test_the_key_does_not_change_with_what_cannot(written, override):
    file = written()
    assert key(file, override) == key(file)


def test_the_key_knows_what_no_memory_reads(written):
    file = written()
    assert key(file, "model.mixer=kv_only", "model.update_rule=retention") == key(file, "model.mixer=kv_only")
    unread = ("model.positions=none", "model.timing.window=9")
    assert key(file, "model.mixer=fw_only", *unread) == key(file, "model.mixer=fw_only")
    assert key(file, "train.stop_at=99", "measure.select=valid/accuracy") != key(file, "train.stop_at=99")


def test_keys_stay_what_they_are(written):
    """Results are found by their keys for years: a change here needs a reason, and old studies need a way over."""
    assert key(written()) == "92657026f0f7dfc3"


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 12),
        (["arm=a"], 6),
        (["mixer=sum"], 6),
        (["arm=a,mixer=sum,seed=1"], 1),
        (["seed=0", "seed=2"], 8),
        (["model.mixer=sum"], 6),
    ],
)
def test_cells_can_be_chosen(written, only, count):
    file = written("arms: {a: {}, b: {model.positions: none}}\ncross: {model.mixer: [sum, vector]}\n")
    assert len(chosen(plan(load(file)), only)) == count


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("arm", "--only arm: a choice is given as name=value"),
        ("armm=a", "nothing is called 'armm'. Did you mean 'arm'?"),
        ("arm=c", "--only arm=c: there is no such value. There is: a, b."),
        ("seed=9", "There is: 0, 1, 2."),
    ],
)
def test_a_choice_of_nothing_is_told(written, only, says):
    with pytest.raises(ConfigError) as told:
        chosen(plan(load(written("arms: {a: {}, b: {model.positions: none}}\n"))), [only])
    assert says in str(told.value)


def test_the_room_loads_no_torch_until_a_composition_is_checked():
    script = (
        "import sys, hqlt_lab.experiment.experiment, hqlt_lab.experiment.json_schema; print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_the_schema_accepts_good_files_and_refuses_bad_ones(written):
    def valid(text):
        return jsonschema.Draft202012Validator(json_schema()).is_valid(OmegaConf.to_container(OmegaConf.create(text)))

    assert valid(BASE + "arms: {a: {}, b: {model.mixer: sum}}\ntune: {train.lr: {low: 0.1, high: 1}}\n")
    assert valid(BASE.replace("layers: 2", "layers: 2, mixer: [sum, {name: vector}]"))
    assert valid(BASE + "arms: {a: {allow: [idle_fast_weights]}}\n")
    assert not valid(BASE + "arms: {a: {allow: [idle]}}\n")
    for good, bad in (
        ("width", "widht"),
        ("steps: 10", "steps: ten"),
        ("synchronous", "synchrone"),
        ("window", "windw"),
        ("task", "tsk"),
    ):
        assert not valid(BASE.replace(good, bad, 1))


def test_every_setting_has_a_sentence_in_the_schema():
    for name in ("model", "train", "trainer", "measure"):
        section = json_schema()["properties"][name]["properties"]
        assert all(setting["description"].endswith((".", "?")) for setting in section.values())


def test_replace_is_how_a_cell_is_varied(written):
    (cell,) = cells(load(written("seeds: 1\n")))
    assert key_of(replace(cell, seed=9)) != key_of(cell) == key_of(replace(cell, arm="other"))


def test_a_choice_that_no_cell_meets_is_told(written):
    text = "arms: {a: {}}\none_at_a_time: {model.mixer: [sum], model.heads: [1]}\nseeds: 1\n"
    with pytest.raises(ConfigError, match="--only mixer=sum,heads=1: there is each of these, but no cell that is all"):
        chosen(plan(load(written(text))), ["mixer=sum,heads=1"])
