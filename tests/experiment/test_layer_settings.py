"""Settings per layer in experiment files: patterns, MLPs, learned positions, and the keys of cells without them."""

import json

import jsonschema
import pytest
import torch

from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.json_schema import build_json_schema
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.model.sequence_model import build_model
from tests.issues import raises_issue

BASE = {
    "question": "What matters?",
    "task": {"name": "parity", "train_length": [3, 20], "test_length": [20, 40]},
    "model": {"width": 16, "heads": 2, "layers": 4},
    "train": {"steps": 10, "batch_size": 8},
    "seeds": 1,
}
# arm: (its changes, the key of its cell before patterns, `mlp: none`, learned positions and wide features existed)
KEYS = {
    "default": ({}, "21c596b0091c3c42"),
    "gelu": ({"model.mlp": "gelu"}, "22ed2538ec66ac6b"),
    "lists": ({"model.mixer": ["fw_only", "kv_only"], "model.positions": ["none", "rope"]}, "751826b3907c97b2"),
    "sinusoidal": (
        {"model.positions": "sinusoidal", "model.feature_map": "identity", "model.update_rule": "retention"},
        "25e9386b760160e3",
    ),
    "wide": ({"model.mlp_width": 48, "model.timing": {"name": "delayed_chunk", "window": 4}}, "d83a062ab0c2e132"),
    "trained": ({"train.report": "best_valid", "train.clip": None}, "a287018758ee622a"),
}
AGENT = {"task": "t_maze", "measure": {"select": "valid/success", "report": ["test/success"]}}


@pytest.fixture
def load(tmp_path):
    def load_settings(**sections):
        (tmp_path / "question.yaml").write_text(json.dumps(BASE | sections))
        return load_experiment(tmp_path / "question.yaml")

    return load_settings


def keys_by_arm(experiment):
    return {str(cell.arm): key for key, cell in expand_plan(experiment)}


def test_keys_of_cells_are_those_from_before_the_settings_existed(load):
    arms = {name: changes for name, (changes, _) in KEYS.items()}
    assert keys_by_arm(load(arms=arms)) == {name: key for name, (_, key) in KEYS.items()}
    assert keys_by_arm(load(**AGENT)) == {"base": "9d3cf80da3c1fb63"}


# settings: (parameters, sum of the losses, sum of the absolute gradients) from before the settings existed
RESULTS = [
    ({}, (13088, 32.279880255509454, 192.8957750841045)),
    ({"positions": "sinusoidal"}, (13088, 32.02737877804423, 148.99835496035269)),
    ({"mlp": "gelu", "mixer": ["fw_only", "kv_only"]}, (1680, 32.463086249520124, 558.9246594894347)),
    (
        {"update_rule": "retention", "feature_map": "elu_plus_one", "timing": {"name": "delayed_chunk", "window": 3}},
        (13056, 32.204769033174216, 90.01710969479396),
    ),
]


@pytest.mark.parametrize(("settings", "expected"), RESULTS, ids=lambda value: str(value)[:30])
def test_models_compute_what_they_did_before_the_settings_existed(settings, expected):
    model = build_model(seed=3, vocabulary=5, width=8, heads=2, layers=2, **settings).double()
    tokens = torch.arange(20).view(2, 10) % 5
    losses, _ = model(tokens, labels=tokens)
    losses.sum().backward()
    gradients = sum(parameter.grad.abs().sum().item() for parameter in model.parameters())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert (parameters, losses.sum().item(), gradients) == pytest.approx(expected, rel=1e-12)


WIDE = "features_differ_from_key_channels"
EQUAL_MODELS = {
    "repeat": (
        {"model.mixer": {"repeat": [["fw_only", 3], ["kv_only", 1]]}},
        {"model.mixer": ["fw_only"] * 3 + ["kv_only"]},
    ),
    "at": (
        {"model.mixer": {"default": "fw_only", "at": {0: "kv_only", -1: "kv_only"}}},
        {"model.mixer": ["kv_only", "fw_only", "fw_only", "kv_only"]},
    ),
    "same in all layers": ({"model.mlp": {"repeat": [["gelu", 4]]}}, {"model.mlp": "gelu"}),
    "default": ({"model.mlp": ["swiglu", "swiglu"]}, {}),
    "period": ({"model.mlp": ["none", "gelu"]}, {"model.mlp": {"repeat": [["none", 1], ["gelu", 1]]}}),
    "no mlp has a width": ({"model.mlp": "none", "model.mlp_width": 3}, {"model.mlp": "none"}),
    "options at their default": (
        {"model.positions": {"repeat": [[{"name": "rope", "base": 10000.0}, 1], ["none", 1]]}},
        {"model.positions": ["rope", "none"]},
    ),
}


@pytest.mark.parametrize(("first", "second"), EQUAL_MODELS.values(), ids=EQUAL_MODELS)
def test_pattern_and_equal_list_have_the_same_key(load, first, second):
    keys = [cell_key(expand_plan(load(arms={"a": changes}))[0].cell) for changes in (first, second)]
    assert keys[0] == keys[1]
    with raises_issue("arms.b", "identical_arms"):
        load(arms={"a": first, "b": second})


def test_patterns_can_be_crossed_and_have_short_labels(load):
    pattern = {"default": "fw_only", "at": {0: "kv_only"}}
    experiment = load(cross={"model.mixer": ["sum", pattern, {"repeat": [["sum", 1], ["kv_only", 1]]}]})
    assert list(keys_by_arm(experiment)) == [
        "base, mixer=sum",
        "base, mixer=fw_only(0=kv_only)",
        "base, mixer=sum*1 + kv_only*1",
    ]


def test_one_layer_of_a_pattern_can_be_changed(load):
    model = BASE["model"] | {"mixer": {"default": "fw_only", "at": {0: "kv_only"}}}
    experiment = load(model=model, arms={"a": {}, "b": {"model.mixer.default": "sum"}})
    mixers = [[mixer["name"] for mixer in cell.model["mixer"]] for _, cell in expand_plan(experiment)]
    assert mixers == [["kv_only", "fw_only", "fw_only", "fw_only"], ["kv_only", "sum", "sum", "sum"]]


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"model.mixer": {"default": "fw_only", "at": {4: "kv_only"}}}, "model.mixer.at.4", "layer_out_of_range"),
        ({"model.mixer": {"repeat": [["fw_only", 3]]}}, "model.mixer.repeat", "layers_not_divisible"),
        ({"model.mlp": {"repeat": [["gelu", 3], ["relu", 1]]}}, "model.mlp.repeat[1][0]", "setting_of_wrong_type"),
        (
            {"model.mixer": {"default": "sum", "at": {0: {"name": "sum", "b": 2}}}},
            "model.mixer.at.0.b",
            "unknown_option",
        ),
        ({"model.positions": {"name": "learned", "length": 38}}, "model.positions", "document_longer_than_positions"),
        ({"model.feature_map": "dpfp", "model.update_rule": "kda"}, "model.feature_map", WIDE),
    ],
)
def test_mistakes_in_layers_are_reported_before_anything_is_trained(load, changes, path, code):
    with raises_issue(path, code):
        load(arms={"a": {}, "b": changes})


def test_pattern_that_every_arm_replaces_is_checked_too(load):
    model = BASE["model"] | {"mixer": {"default": "vectr", "at": {}}}
    with raises_issue("model.mixer.default", "unknown_component"):
        load(model=model, cross={"model.mixer": ["sum", "vector"]})


def test_learned_positions_may_be_as_long_as_the_longest_sequence(load):
    assert len(expand_plan(load(model=BASE["model"] | {"positions": {"name": "learned", "length": 39}}))) == 1


def test_meta_tokens_count_as_tokens_of_a_document(load):
    def load_model(**settings):
        return load(model=BASE["model"] | settings)

    learned = {"name": "learned", "length": 42}
    assert not load_model(positions=learned, meta_tokens=3).warnings
    with raises_issue("model.positions", "document_longer_than_positions"):
        load_model(positions=learned, meta_tokens=4)
    # the 19 tokens of a training sequence and the meta tokens, or only these, enter the fast weights
    delayed = {"name": "delayed_stream", "window": 30}
    with raises_issue("model.timing", "empty_fast_weights"):
        load_model(timing=delayed, meta_tokens=11)
    assert len(load_model(timing=delayed, meta_tokens=12).warnings) == 1
    assert not load_model(timing=delayed, meta_tokens=21).warnings


def test_size_is_matched_in_the_layers_that_have_an_mlp(load):
    arms = {"all": {}, "some": {"model.mlp": ["none", "gelu"]}, "mixed": {"model.mlp": ["swiglu", "gelu"]}}
    cells = [cell for _, cell in expand_plan(load(arms=arms, match="parameters"))]
    models = [build_model(vocabulary=4, **cell.model) for cell in cells]
    reference, *matched = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert cells[0].model["mlp_width"] is None
    assert [size / reference for size in matched] == pytest.approx([1, 1], abs=0.01)


def test_width_of_an_mlp_cannot_be_matched_without_an_mlp(load):
    with raises_issue("match", "match_has_no_effect"):
        load(arms={"a": {}, "b": {"model.mlp": "none"}}, match="parameters")


def test_json_schema_describes_settings_over_layers():
    validator = jsonschema.Draft202012Validator(build_json_schema())
    valid = {"mixer": {"repeat": [["fw_only", 3], ["kv_only", 1]]}, "mlp": {"default": "none", "at": {"0": "gelu"}}}
    assert validator.is_valid(BASE | {"model": valid | {"update_rule": ["delta", {"name": "delta", "max_beta": 2}]}})
    for mistake in (
        {"mlp": "relu"},
        {"mixer": {"repeat": [["fw_only"]]}},
        {"mixer": {"default": "sum", "at": {"a": "sum"}}},
    ):
        assert not validator.is_valid(BASE | {"model": mistake})


TRAIN_MISTAKES = [
    ({"memories": {"kw": {}}}, "train.memories.kw", "unknown_memory"),
    ({"memories": {"kv": 500}}, "train.memories.kv", "not_a_mapping_of_settings"),
    ({"memories": {"kv": {"start": 500}}}, "train.memories.kv.start", "unknown_setting"),
    ({"memories": {"kv": {"start_step": -1}}}, "train.memories.kv.start_step", "below_minimum"),
    ({"memories": {"fw": {"lr_scale": -0.5}}}, "train.memories.fw.lr_scale", "below_minimum"),
    ({"memories": 3}, "train.memories", "setting_of_wrong_type"),
    ({"window": {"low": 8}}, "train.window", "missing_setting"),
    ({"window": {"low": 8, "high": 4}}, "train.window.high", "range_in_wrong_order"),
    ({"window": {"low": 0, "high": 4}}, "train.window.low", "below_minimum"),
    ({"window": {"low": 8, "high": 9.5}}, "train.window.high", "setting_of_wrong_type"),
    ({"window": {"low": 8, "high": 9}, "compile": True}, "train.window", "window_with_compile"),
]


@pytest.mark.parametrize(("train", "path", "code"), TRAIN_MISTAKES)
def test_mistakes_in_the_training_of_memories_are_reported(load, train, path, code):
    with raises_issue(path, code):
        load(train=BASE["train"] | train)


def test_training_of_a_memory_that_no_layer_reads_is_rejected(load):
    with raises_issue("train.memories.kv", "unread_memory"):
        load(arms={"a": {}, "b": {"train.memories.kv.start_step": 5, "model.mixer": "fw_only"}})


@pytest.mark.parametrize(
    "changes", [{"model.timing": {"name": "synchronous", "window": None}}, {"model.mixer": "fw_only"}], ids=str
)
def test_window_that_no_layer_has_cannot_be_drawn(load, changes):
    with raises_issue("train.window", "no_window_to_draw"):
        load(arms={"a": {}, "b": {"train.window": {"low": 2, "high": 8}, **changes}})


def test_window_of_an_agent_cannot_be_drawn(load):
    with raises_issue("train.window", "not_supported_for_agents"):
        load(**AGENT, train=BASE["train"] | {"window": {"low": 2, "high": 8}})


def test_learning_rate_of_a_memory_without_parameters_is_a_warning(load):
    (warning,) = load(train=BASE["train"] | {"memories": {"kv": {"lr_scale": 0.5}}}).warnings
    assert "train.memories.kv.lr_scale" in warning
    assert load(train=BASE["train"] | {"memories": {"fw": {"lr_scale": 0.5}}}).warnings == ()


def test_training_of_memories_is_part_of_the_key_unless_it_is_the_default(load):
    arms = {"a": {}, "b": {"train.memories.fw.start_step": 5}, "c": {"train.window": {"low": 2, "high": 8}}}
    keys = keys_by_arm(load(arms=arms))
    assert len(set(keys.values())) == 3
    defaults = {"memories": {"fw": {"start_step": 0, "lr_scale": 1.0}}, "window": None}
    assert keys_by_arm(load(train=BASE["train"] | defaults)) == {"base": keys["a"]}


def test_stored_cell_has_the_training_of_its_memories(load):
    train = {"memories": {"fw": {"start_step": 5, "lr_scale": 0.5}}, "window": {"low": 2, "high": 8}}
    ((_, cell),) = expand_plan(load(train=BASE["train"] | train))
    stored = json.loads(json.dumps(cell.to_dict()))
    assert {name: stored["train"][name] for name in train} == train
    assert cell_from_dict(stored) == cell


def test_json_schema_describes_the_sizes_of_memories():
    validator = jsonschema.Draft202012Validator(build_json_schema())
    sizes = {"fw": {"heads": 2, "key_dim": 3}, "kv": {"groups": None}, "head_dim": 4, "projections": "separate"}
    assert validator.is_valid(BASE | {"model": sizes})
    for mistake in ({"fw": {"groups": 2}}, {"kv": {"key_dim": 2.5}}, {"kv": 2}, {"projections": "both"}):
        assert not validator.is_valid(BASE | {"model": mistake})


def test_json_schema_describes_the_training_of_memories():
    validator = jsonschema.Draft202012Validator(build_json_schema())
    assert validator.is_valid(
        BASE | {"train": {"memories": {"kv": {"start_step": 5}}, "window": {"low": 2, "high": 8}}}
    )
    assert validator.is_valid(BASE | {"train": {"window": None}})
    for mistake in ({"memories": {"kw": {}}}, {"memories": {"kv": {"start": 5}}}, {"window": {"low": 2}}):
        assert not validator.is_valid(BASE | {"train": mistake})
