"""Experiment files expand to cells (arms x axes x points x seeds) with the right settings and keys."""

import json
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest
from omegaconf import OmegaConf

from hqlt_lab.experiment.apply_overrides import apply_changes
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.cell_filters import filter_cells
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.json_schema import build_json_schema
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.parse_axes import Range
from tests.issues import raises_issue

BASE = """
question: What matters?
task: {name: parity, train_length: [3, 20], test_length: [20, 40]}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 10, batch_size: 8}
"""


@pytest.fixture
def write_file(tmp_path):
    def write(more="", name="question.yaml", base=BASE):
        (tmp_path / name).write_text(base + more)
        return tmp_path / name

    return write


def cells(experiment):
    return [planned.cell for planned in expand_plan(experiment)]


def test_cells_are_arms_times_axes_times_points_times_seeds(write_file):
    file = write_file(
        "arms: {a: {}, b: {model.positions: none}}\ncross: {model.mixer: [sum, vector], model.timing.window: [4, 8]}\n"
        "tune: {train.lr: [1e-3, 1e-4]}\nseeds: [3, 5]\n"
    )
    planned_cells = cells(load_experiment(file))
    first, last = planned_cells[0], planned_cells[-1]
    assert len(planned_cells) == 2 * 4 * 2 * 2
    assert first.arm == "a, mixer=sum, window=4" and last.arm == "b, mixer=vector, window=8"
    assert last.axes == {"model.mixer": "vector", "model.timing.window": 8, "train.lr": 1e-4}
    assert last.model["mixer"] == {"name": "vector"} and last.model["timing"]["window"] == 8
    assert last.train.lr == 1e-4 and last.seed == 5
    assert len({planned.key for planned in expand_plan(load_experiment(file))}) == 32


def test_requested_backend_changes_the_key(write_file):
    auto, recurrent = cells(
        load_experiment(write_file("arms: {a: {}, b: {ops.scan: recurrent}}\nops: {attention: auto}\nseeds: 1\n"))
    )
    assert (auto.ops.scan, recurrent.ops.scan) == ("auto", "recurrent") and cell_key(auto) != cell_key(recurrent)
    assert cell_key(auto) == cell_key(cells(load_experiment(write_file("seeds: 1\n")))[0])
    with raises_issue("ops.scan", "setting_of_wrong_type"):
        load_experiment(write_file("ops: {scan: fals}\n"))


def test_experiment_without_arms_has_one_arm(write_file):
    assert [cell.arm for cell in cells(load_experiment(write_file("seeds: 1\n")))] == ["base"]


def test_one_at_a_time_changes_a_single_axis_per_arm(write_file):
    file = write_file("one_at_a_time: {model.mixer: [sum, scalar], model.positions: [none]}\nseeds: 1\n")
    assert [cell.arm for cell in cells(load_experiment(file))] == [
        "base",
        "base, mixer=sum",
        "base, mixer=scalar",
        "base, positions=none",
    ]


def test_axis_values_can_be_components_with_options(write_file):
    file = write_file("cross: {model.update_rule: [linear_attention, {name: delta, max_beta: 2}]}\nseeds: 1\n")
    first, second = cells(load_experiment(file))
    assert first.model["update_rule"] == {"name": "linear_attention", "normalizer": "time"}
    assert second.arm == "base, update_rule=delta(max_beta=2)" and second.model["update_rule"]["max_beta"] == 2


def test_setting_a_component_replaces_it_and_setting_its_name_keeps_its_options(write_file):
    file = write_file(
        "arms:\n  renamed: {model.timing.name: delayed_stream}\n"
        "  replaced: {model.timing: {name: delayed_chunk, window: 5}}\n"
        "  option: {model.update_rule.max_beta: 2}\nseeds: 1\n"
    )
    renamed, replaced, option = cells(load_experiment(file))
    assert renamed.model["timing"] == {"name": "delayed_stream", "window": 4, "gates": "current", "sinks": 0}
    assert replaced.model["timing"] == {"name": "delayed_chunk", "window": 5, "hold": None, "sinks": 0}
    assert option.model["update_rule"] == {"name": "delta", "max_beta": 2}


def test_range_is_not_expanded_into_cells(write_file):
    experiment = load_experiment(write_file("tune: {train.lr: {low: 1e-4, high: 1e-2, log: true, trials: 7}}\n"))
    assert experiment.tune["train.lr"] == Range(low=1e-4, high=1e-2, log=True, trials=7)
    assert len(cells(experiment)) == 3


def test_interpolation_follows_overrides_and_arms(write_file):
    """A value that refers to another one changes with it, also when an arm or the command line changes that one."""
    file = write_file(
        "  lr_horizon: ${train.steps}\narms: {short: {}, long: {train.steps: 40}}\nseeds: 1\n",
        base=BASE.replace("train: {steps: 10, batch_size: 8}", "train:\n  steps: 10\n  batch_size: 8"),
    )
    assert [cell.train.lr_horizon for cell in cells(load_experiment(file))] == [10, 40]
    assert [cell.train.lr_horizon for cell in cells(load_experiment(file, ["train.steps=20"]))] == [20, 40]


def test_file_can_extend_another(write_file):
    write_file("arms: {a: {}, b: {model.mixer: sum}}\n", "other.yaml")
    file = write_file(
        "extends: other.yaml\nmodel: {timing: {name: delayed_stream, window: 5}, width: 32, layers: 2}\n"
        "task: {name: parity}\n"
        "train: {lr: 0.5}\nseeds: 1\n",
        base="",
    )
    first, second = cells(load_experiment(file))
    assert first.train.steps == 10 and first.train.lr == 0.5
    assert first.model["timing"]["window"] == 5 and first.model["heads"] == 2 and first.model["width"] == 32
    assert first.task["train_length"] == [3, 40], "a component replaces a component"
    assert second.model["mixer"] == {"name": "sum"}


def test_file_that_extends_itself_is_an_error(write_file):
    write_file("extends: question.yaml\n", "other.yaml")
    with raises_issue("extends", "extends_itself"):
        load_experiment(write_file("extends: other.yaml\n"))


def test_stored_cell_is_rebuilt_with_the_same_key(write_file):
    for planned in expand_plan(
        load_experiment(write_file("arms: {a: {}, b: {model.mixer: [sum, kv_only]}}\nseeds: 1\n"))
    ):
        stored = json.loads(json.dumps(planned.cell.to_dict()))
        assert cell_from_dict(stored) == planned.cell and cell_key(cell_from_dict(stored)) == planned.key


def key(file, *overrides):
    return expand_plan(load_experiment(file, overrides))[0].key


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
def test_key_changes_with_settings_that_can_change_the_result(write_file, override):
    file = write_file()
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
def test_key_does_not_change_with_settings_that_cannot_change_the_result(write_file, override):
    file = write_file()
    assert key(file, override) == key(file)


def test_components_that_no_memory_reads_are_not_in_the_key(write_file):
    file = write_file()
    assert key(file, "model.mixer=kv_only", "model.update_rule=retention") == key(file, "model.mixer=kv_only")
    unread = ("model.positions=none", "model.timing.window=9")
    assert key(file, "model.mixer=fw_only", *unread) == key(file, "model.mixer=fw_only")
    assert key(file, "train.stop_at=99", "measure.select=valid/accuracy") != key(file, "train.stop_at=99")


def test_keys_are_stable_between_versions(write_file):
    """Results are found by their keys. A change of keys needs a reason, and a migration for existing studies."""
    assert key(write_file()) == "92657026f0f7dfc3"


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([], 12),
        (["arm=a"], 6),
        (["mixer=sum"], 6),
        (["arm=a,mixer=sum,seed=1"], 1),
        (["seed=0", "seed=2"], 8),
        (["model.mixer=sum"], 6),
    ],
)
def test_cells_can_be_filtered(write_file, filters, count):
    file = write_file("arms: {a: {}, b: {model.positions: none}}\ncross: {model.mixer: [sum, vector]}\n")
    assert len(filter_cells(expand_plan(load_experiment(file)), filters)) == count


@pytest.mark.parametrize(
    ("invalid_filter", "code"),
    [
        ("arm", "not_label_and_value"),
        ("armm=a", "unknown_label"),
        ("arm=c", "unknown_label_value"),
        ("seed=9", "unknown_label_value"),
    ],
)
def test_filter_with_an_unknown_name_or_value_is_an_error(write_file, invalid_filter, code):
    plan = expand_plan(load_experiment(write_file("arms: {a: {}, b: {model.positions: none}}\n")))
    with raises_issue("--only", code):
        filter_cells(plan, [invalid_filter])


def test_importing_the_package_does_not_load_torch():
    script = (
        "import sys, hqlt_lab.experiment.load_experiment, hqlt_lab.experiment.json_schema\n"
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_schema_accepts_valid_files_and_rejects_invalid_ones(write_file):
    def is_valid(text):
        return jsonschema.Draft202012Validator(build_json_schema()).is_valid(
            OmegaConf.to_container(OmegaConf.create(text))
        )

    assert is_valid(BASE + "arms: {a: {}, b: {model.mixer: sum}}\ntune: {train.lr: {low: 0.1, high: 1}}\n")
    assert is_valid(BASE.replace("layers: 2", "layers: 2, mixer: [sum, {name: vector}]"))
    assert is_valid(BASE + "arms: {a: {allow: [empty_fast_weights]}}\n")
    assert not is_valid(BASE + "arms: {a: {allow: [empty]}}\n")
    for valid_text, invalid_text in (
        ("width", "widht"),
        ("steps: 10", "steps: ten"),
        ("synchronous", "synchrone"),
        ("window", "windw"),
        ("task", "tsk"),
    ):
        assert not is_valid(BASE.replace(valid_text, invalid_text, 1))


def test_every_setting_has_a_description_in_the_schema():
    for name in ("model", "train", "trainer", "measure"):
        section = build_json_schema()["properties"][name]["properties"]
        assert all(setting["description"].endswith((".", "?")) for setting in section.values())


def test_seed_changes_the_key_and_the_name_of_the_arm_does_not(write_file):
    (cell,) = cells(load_experiment(write_file("seeds: 1\n")))
    assert cell_key(replace(cell, seed=9)) != cell_key(cell) == cell_key(replace(cell, arm="other"))


def test_every_precision_has_a_key_of_its_own(write_file):
    (cell,) = cells(load_experiment(write_file("seeds: 1\n")))
    trainers = [replace(cell.trainer, precision=precision) for precision in ("auto", "32", "64", "bf16-mixed")]
    assert len({cell_key(replace(cell, trainer=trainer)) for trainer in trainers}) == len(trainers)


def test_changes_of_an_arm_leave_the_base_as_it_was():
    base = {"model": {"timing": {"name": "synchronous", "window": 4}}}
    changed = apply_changes(base, {"model.timing.window": 8}, ("model",))
    assert changed == {"model": {"timing": {"name": "synchronous", "window": 8}}}
    assert base == {"model": {"timing": {"name": "synchronous", "window": 4}}}


def test_filter_that_matches_no_cell_is_an_error(write_file):
    text = "arms: {a: {}}\none_at_a_time: {model.mixer: [sum], model.heads: [1]}\nseeds: 1\n"
    with raises_issue("--only", "no_cell_matches"):
        filter_cells(expand_plan(load_experiment(write_file(text))), ["mixer=sum,heads=1"])
