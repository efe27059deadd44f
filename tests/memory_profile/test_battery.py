"""The files of the battery fit every composition, and the settings of the battery win over those of a composition."""

import pytest

from hqlt_lab.api import prepare_profile
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.memory_profile.composition import read_composition
from hqlt_lab.memory_profile.load_battery import BATTERY, BATTERY_FOLDER, load_battery
from hqlt_lab.model.config import COMPONENT_KINDS
from hqlt_lab.model.layer_pattern import layer_value
from tests.issues import list_codes, raises_issue

FILE = """
question: Which?
task: {name: parity, train_length: [3, 20], test_length: [20, 20]}
model: {width: 48, heads: 3, layers: 4, mixer: sum, timing: {name: synchronous, window: "${train.warmup}"}}
train: {warmup: 6}
"""
ARMS = """
arms:
  plain: {}
  chunks: {model.timing: {name: delayed_chunk, window: 4}, allow: [empty_fast_weights]}
cross: {model.positions: [none, rope]}
"""
COMPOSITIONS = [
    [],
    ["model.mixer=fw_only", "model.update_rule={name: delta_product, steps: 2, max_beta: 2}", "model.positions=none"],
    ["model.mixer=kv_only", "model.timing={name: synchronous, window: null}"],
    ["model.mixer=[fw_only, kv_only]", "model.timing={name: synchronous, window: 8}"],
    ["model.mixer={repeat: [[fw_only, 3], [kv_only, 1]]}"],
    ["model.timing={name: delayed_stream, window: 8}"],
    ["model.timing={name: delayed_chunk, window: 8}"],
]


@pytest.fixture
def write_file(tmp_path):
    """Return a function that writes an experiment file."""

    def write(text, name="study"):
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return write


def prepare(tmp_path, overrides, name="mine", **options):
    return prepare_profile(None, name=name, overrides=overrides, runs=tmp_path / "runs", **options)


def test_every_file_of_the_battery_is_a_test():
    assert sorted(BATTERY) == sorted(file.stem for file in BATTERY_FOLDER.iterdir())


@pytest.mark.parametrize("test", load_battery(), ids=lambda test: test.name)
def test_a_file_of_the_battery_has_sizes_and_no_components(test):
    assert not {*COMPONENT_KINDS, "layer_kind", "mlp"} & set(test.fixed_settings)
    assert {"width", "heads", "layers", "mlp_width"} <= set(test.fixed_settings)
    assert set(test.config) == {"question", "task", "model", "train", "seeds", "measure"}
    assert test.config["seeds"] == 3


@pytest.mark.parametrize("overrides", COMPOSITIONS, ids=str)
def test_every_composition_can_be_profiled(tmp_path, overrides):
    prepared = prepare(tmp_path, overrides)
    assert tuple(prepared.experiments) == BATTERY
    assert [experiment.warnings for experiment in prepared.experiments.values()] == [()] * len(BATTERY)
    for test in load_battery():
        cells = [cell for _, cell in expand_plan(prepared.experiments[test.name])]
        assert len(cells) == 3
        assert {key: cells[0].model[key] for key in ("width", "heads", "mlp_width")} == {
            key: test.fixed_settings[key] for key in ("width", "heads", "mlp_width")
        }


def test_metrics_by_length_are_those_of_the_test_slices(tmp_path):
    for experiment in prepare(tmp_path, []).experiments.values():
        slices = experiment.base["task"].get("test_slices")
        names = [f"test/accuracy/length_{low}_{high}" for low, high in (s["test_length"] for s in slices or ())]
        assert experiment.measure.report == (names or ["test/accuracy"])


def test_sizes_of_the_composition_are_replaced_and_said(tmp_path, write_file):
    prepared = prepare_profile(write_file(FILE), runs=tmp_path / "runs", overrides=["model.fw={key_dim: 8}"])
    assert prepared.profile.name == "study"
    model = next(iter(prepared.experiments.values())).base["model"]
    assert (model["width"], model["heads"], model["layers"], model["mixer"]) == (32, 2, 2, "sum")
    assert "fw" not in model
    assert model["timing"]["window"] == 6  # the interpolated value of the file
    (sizes, short_conv) = prepared.profile.notes
    assert sizes.endswith("not used: width 48, heads 3, layers 4, fw {'key_dim': 8}.")
    assert short_conv == "In recall_8 and recall_16, short_conv is 4."


def test_settings_that_are_equal_to_those_of_the_battery_are_not_mentioned(tmp_path):
    assert prepare(tmp_path, ["model.short_conv=4"]).profile.notes == ()


def test_an_arm_is_selected_by_title_or_by_a_unique_name_and_set_options_win_over_it(tmp_path, write_file):
    file = write_file(FILE + ARMS)
    composition = read_composition(file, "chunks, positions=rope", ["model.timing.window=5"])
    assert composition.model["timing"] == {"name": "delayed_chunk", "window": 5}
    assert composition.model["positions"] == "rope"
    assert composition.allow == ("empty_fast_weights",)
    with raises_issue("--arm", "unknown_arm"):
        read_composition(file, "chunks", [])  # of two titles
    with raises_issue("--arm", "unknown_arm"):
        read_composition(file, "chunk", [])
    with raises_issue("--arm", "arm_needed"):
        read_composition(file, None, [])
    with raises_issue("--arm", "arm_without_file"):
        read_composition(None, "chunks", [])
    single = write_file(FILE + "arms: {one: {}, two: {model.mixer: vector}}", "single")
    assert read_composition(single, "two", []).model["mixer"] == "vector"
    prepared = prepare_profile(file, arm="chunks, positions=rope", runs=tmp_path / "runs")
    assert prepared.profile.name == "study_chunks_positions_rope"


def test_the_allowed_issues_of_an_arm_hold_in_the_battery(tmp_path, write_file):
    long_window = "arms: {long: {model.timing: {name: delayed_stream, window: 200}, allow: [empty_fast_weights]}}"
    prepared = prepare_profile(write_file(FILE + long_window), runs=tmp_path / "runs")
    assert prepared.experiments["recall_8"].arms[0].allow == ("empty_fast_weights",)
    with raises_issue("model.timing", "empty_fast_weights"):
        prepare(tmp_path, ["model.timing={name: delayed_stream, window: 200}"])


def test_patterns_over_the_layers_get_as_many_layers_as_they_need(tmp_path):
    pattern = "model.mixer={repeat: [[fw_only, 2], [kv_only, 1]]}"
    prepared = prepare(tmp_path, [pattern])
    assert {experiment.base["model"]["layers"] for experiment in prepared.experiments.values()} == {3}
    assert all(test in prepared.profile.notes[-1] for test in BATTERY)
    two = prepare(tmp_path, ["model.mixer=[fw_only, kv_only]"], "two")
    assert {name: experiment.base["model"]["layers"] for name, experiment in two.experiments.items()} == dict.fromkeys(
        BATTERY, 2
    )
    assert "parity" not in two.profile.notes[-1] and "s3_words" in two.profile.notes[-1]


def test_exceptions_by_layer_keep_the_number_of_layers_of_the_composition(tmp_path):
    overrides = ["model.layers=5", "model.mixer={default: fw_only, at: {4: kv_only}}"]
    cell = expand_plan(prepare(tmp_path, overrides).experiments["s3_words"])[0].cell
    assert [layer_value(cell.model["mixer"], layer)["name"] for layer in range(5)] == ["fw_only"] * 4 + ["kv_only"]


def test_a_mistake_is_reported_once_with_the_option_that_caused_it(tmp_path):
    with raises_issue("model.mixer", "unknown_component") as error:
        prepare(tmp_path, ["model.mixer=summ"])
    assert [(*code, issue.source) for code, issue in zip(list_codes(error.value), error.value.issues, strict=True)] == [
        ("model.mixer", "unknown_component", "--set model.mixer")
    ]
    assert not (tmp_path / "runs").exists()


def test_invalid_names_of_tests_and_profiles_are_refused(tmp_path):
    with raises_issue("--test", "unknown_profile_test"):
        prepare(tmp_path, [], tests=["recall_9"])
    for name in ("../x", ".x", "a b", "-x"):
        with raises_issue("--name", "invalid_profile_name"):
            prepare(tmp_path, [], name)
    with raises_issue("--name", "profile_without_name"):
        prepare(tmp_path, [], None)
