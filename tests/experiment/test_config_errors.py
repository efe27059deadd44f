"""A collection of mistakes in experiment files, each with the message that explains it before anything trains."""

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.load_experiment import load_experiment
from tests.issues import raises_issue

VALID_SECTIONS = {
    "question": "question: Which timing keeps the fast weights' state tracking?",
    "task": "task: {name: parity, train_length: [3, 20], test_length: [20, 40]}",
    "model": "model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 4}}",
    "train": "train: {steps: 10, batch_size: 8}",
}

# name: (sections that differ from VALID_SECTIONS, path and code of an expected issue, the arms that have it if not all)
MISTAKES = {
    "unknown section": ({"modle": "modle: {width: 8}"}, "modle", "unknown_section"),
    "no question": ({"question": ""}, "question", "missing_question"),
    "no task": ({"task": ""}, "task", "missing_task"),
    "unknown task": ({"task": "task: paritty"}, "task", "unknown_component"),
    "unknown task option": (
        {"task": "task: {name: parity, trainlength: [3, 20]}"},
        "task.trainlength",
        "unknown_option",
    ),
    "ill-typed task option": (
        {"task": "task: {name: parity, train_length: 20}"},
        "task.train_length",
        "option_of_wrong_type",
    ),
    "lengths in the wrong order": (
        {"task": "task: {name: parity, train_length: [20, 3]}"},
        "task.train_length",
        "sizes_in_wrong_order",
    ),
    "unknown model setting": (
        {"model": "model: {widht: 8}"},
        "model.widht",
        "unknown_setting",
    ),
    "ill-typed model setting": ({"model": "model: {width: wide}"}, "model.width", "setting_of_wrong_type"),
    "heads do not divide": (
        {"model": "model: {width: 128, heads: 3}"},
        "model.heads",
        "width_not_divisible",
    ),
    "vocabulary given": ({"model": "model: {vocabulary: 10}"}, "model.vocabulary", "set_by_task"),
    "unknown component": (
        {"model": "model: {update_rule: dleta}"},
        "model.update_rule",
        "unknown_component",
    ),
    "unknown component that every arm replaces": (
        {"model": "model: {mixer: vectr}", "cross": "cross: {model.mixer: [sum, vector]}"},
        "model.mixer",
        "unknown_component",
    ),
    "a setting of the model without its section": (
        {"arms": "arms: {a: {}, b: {mixer.name: sum}}"},
        "arms.b.mixer.name",
        "path_cannot_be_set",
    ),
    "unknown component without a similar name": (
        {"model": "model: {update_rule: zzzzzz}"},
        "model.update_rule",
        "unknown_component",
    ),
    "unknown option of a component": (
        {"model": "model: {update_rule: {name: delta, beta: 2}}"},
        "model.update_rule.beta",
        "unknown_option",
    ),
    "ill-typed option of a component": (
        {"model": "model: {timing: {name: synchronous, window: eight}}"},
        "model.timing.window",
        "option_of_wrong_type",
    ),
    "option out of range": (
        {"model": "model: {update_rule: {name: delta, max_beta: 3}}"},
        "model.update_rule.max_beta",
        "out_of_range",
    ),
    "null for none": (
        {"model": "model: {positions: null}"},
        "model.positions",
        "unknown_component",
    ),
    "code in the YAML": (
        {"model": "model: {mixer: {_target_: os.system, name: sum}}"},
        "model.mixer._target_",
        "unknown_option",
    ),
    "incompatible components": (
        {"model": "model: {feature_map: elu_plus_one}"},
        "model.feature_map",
        "keys_not_normalized",
    ),
    "empty fast weights": (
        {"model": "model: {timing: {name: delayed_stream, window: 64}}"},
        "model.timing",
        "empty_fast_weights",
    ),
    "empty fast weights in one arm": (
        {"arms": "arms: {a: {}, b: {model.timing.name: delayed_chunk, model.timing.window: 19}}"},
        "model.timing",
        "empty_fast_weights",
        ("b",),
    ),
    "empty fast weights in one arm, allowed in another with the same model": (
        {
            "model": "model: {timing: {name: delayed_stream, window: 64}}",
            "arms": "arms: {a: {allow: [empty_fast_weights]}, b: {train.lr: 0.1}}",
        },
        "model.timing",
        "empty_fast_weights",
        ("b",),
    ),
    "allowing an unknown issue": (
        {"arms": "arms: {a: {allow: [empty_fast_weight]}}"},
        "arms.a.allow",
        "not_allowable",
    ),
    "allowing without a list": (
        {"arms": "arms: {a: {allow: empty_fast_weights}}"},
        "arms.a.allow",
        "allow_not_a_list",
    ),
    "unknown train setting": (
        {"train": "train: {step: 10}"},
        "train.step",
        "unknown_setting",
    ),
    "ill-typed train setting": ({"train": "train: {lr: fast}"}, "train.lr", "setting_of_wrong_type"),
    "impossible train setting": ({"train": "train: {steps: 0}"}, "train.steps", "below_minimum"),
    "batch that does not divide": (
        {"train": "train: {batch_size: 10, accumulate: 3}"},
        "train.accumulate",
        "batch_not_divisible",
    ),
    "unknown trainer setting": (
        {"trainer": "trainer: {max_epochs: 3}"},
        "trainer.max_epochs",
        "unknown_setting",
    ),
    "precision": (
        {"trainer": "trainer: {precision: 8}"},
        "trainer.precision",
        "setting_of_wrong_type",
    ),
    "selecting on the test set": (
        {"measure": "measure: {select: test/accuracy}"},
        "measure.select",
        "selection_on_test_set",
    ),
    "unknown metric": (
        {"measure": "measure: {report: [test/acuracy]}"},
        "measure.report",
        "unknown_metric",
    ),
    "arm that is not a mapping": (
        {"arms": "arms: {a: sum}"},
        "arms.a",
        "not_a_mapping_of_changes",
    ),
    "arms that are a list": ({"arms": "arms: [sum, vector]"}, "arms", "not_a_mapping_of_entries"),
    "arm that changes an unknown section": (
        {"arms": "arms: {a: {modl.mixer: sum}}"},
        "arms.a.modl.mixer",
        "path_cannot_be_set",
    ),
    "arm with an option that the new component lacks": (
        {
            "model": "model: {update_rule: {name: delta, max_beta: 2}}",
            "arms": "arms: {a: {}, b: {model.update_rule.name: retention}}",
        },
        "model.update_rule.max_beta",
        "unknown_option",
        ("b",),
    ),
    "two identical arms": (
        {"arms": "arms: {a: {model.mixer: sum}, b: {model.mixer: {name: sum}}}"},
        "arms.b",
        "identical_arms",
    ),
    "an axis that does not affect the model": (
        {"model": "model: {mixer: kv_only}", "cross": "cross: {model.update_rule: [delta, retention]}"},
        "arms.base",
        "identical_arms",
    ),
    "the same arm twice": (
        {"arms": "arms:\n  a: {model.mixer: sum}\n  a: {model.mixer: vector}"},
        "",
        "yaml_duplicate_key",
    ),
    "cross without a list": (
        {"cross": "cross: {model.mixer: sum}"},
        "cross.model.mixer",
        "not_a_list_of_values",
    ),
    "a value twice": ({"cross": "cross: {model.mixer: [sum, sum]}"}, "cross.model.mixer", "value_twice"),
    "cross and one_at_a_time": (
        {"cross": "cross: {model.mixer: [sum]}", "one_at_a_time": "one_at_a_time: {train.lr: [1]}"},
        "cross",
        "cross_and_one_at_a_time",
    ),
    "unknown component in an axis": (
        {"cross": "cross: {model.mixer: [sum, vectr]}"},
        "model.mixer",
        "unknown_component",
        ("base, mixer=vectr",),
    ),
    "range in the wrong order": (
        {"tune": "tune: {train.lr: {low: 1, high: 0.1}}"},
        "tune.train.lr.low",
        "range_in_wrong_order",
    ),
    "range without a bound": ({"tune": "tune: {train.lr: {low: 1}}"}, "tune.train.lr", "range_without_bound"),
    "no seeds": ({"seeds": "seeds: 0"}, "seeds", "no_seed"),
    "a negative number of seeds": ({"seeds": "seeds: -2"}, "seeds", "no_seed"),
    "an empty list of seeds": ({"seeds": "seeds: []"}, "seeds", "no_seed"),
    "no seeds to tune with": ({"seeds": "seeds: 1\ntune_seeds: 0"}, "tune_seeds", "no_seed"),
    "seeds that are a word": ({"seeds": "seeds: many"}, "seeds", "invalid_seeds"),
    "line break in the name of an arm": ({"arms": 'arms: {"a\\nb": {}, c: {}}'}, "arms", "invalid_row_name"),
    "tab in the name of an arm": ({"arms": 'arms: {"a\\tb": {}}'}, "arms", "invalid_row_name"),
    "empty name of an arm": ({"arms": 'arms: {"": {}}'}, "arms", "invalid_row_name"),
    "blank name of an arm": ({"arms": 'arms: {"  ": {}}'}, "arms", "invalid_row_name"),
    "line break in the name of a quoted row": (
        {"quoted": 'quoted: {"Mam\\nba": {test/accuracy: {best: 1}}}'},
        "quoted",
        "invalid_row_name",
    ),
    "blank name of a quoted row": (
        {"quoted": 'quoted: {" ": {test/accuracy: {best: 1}}}'},
        "quoted",
        "invalid_row_name",
    ),
    "a seed twice": ({"seeds": "seeds: [1, 1]"}, "seeds", "seed_twice"),
    "published row without an arm": (
        {"arms": "arms: {sync: {}}", "published": "published: {snc: {test/accuracy: {best: 1}}}"},
        "published.snc",
        "unknown_arm",
    ),
    "quoted row without a metric": ({"quoted": "quoted: {Mamba: 100}"}, "quoted.Mamba", "not_a_mapping_of_metrics"),
    "agent without an environment": (
        {"agent": "agent: {entropy: 0.1}"},
        "agent",
        "agent_without_environment",
    ),
    "unknown agent setting": (
        {"task": "task: t_maze", "agent": "agent: {gamma: 0.9}"},
        "agent.gamma",
        "unknown_setting",
    ),
    "impossible agent settings": (
        {"task": "task: t_maze", "agent": "agent: {discount: 2, target_rate: 0}"},
        "agent.discount",
        "out_of_range",
    ),
    "an agent on several devices": (
        {"task": "task: t_maze", "trainer": "trainer: {devices: 2}"},
        "trainer.devices",
        "not_supported_for_agents",
    ),
    "probes of an agent": (
        {"task": "task: t_maze", "train": "train: {probe_every: 10}"},
        "train.probe_every",
        "not_supported_for_agents",
    ),
    "default metric in an environment": ({"task": "task: t_maze"}, "measure.select", "unknown_metric"),
    "accuracy in an environment": (
        {"task": "task: t_maze", "measure": "measure: {select: valid/accuracy}"},
        "measure.select",
        "unknown_metric",
    ),
    "dropout of 1": ({"model": "model: {dropout: 1}"}, "model.dropout", "out_of_range"),
    "dangling interpolation": (
        {"train": "train: {steps: '${model.length}'}"},
        "train.steps",
        "dangling_reference",
    ),
    "not YAML": ({"train": "train: {steps: 10"}, "", "yaml_unclosed_bracket"),
    "not a mapping": (
        {name: "" for name in VALID_SECTIONS} | {"list": "- a\n- b"},
        "",
        "not_a_mapping_of_sections",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_reported_with_its_path_and_the_nearest_valid_name(mistake, tmp_path):
    sections, path, code, *arms = mistake
    file = tmp_path / "question.yaml"
    file.write_text("\n".join((VALID_SECTIONS | sections).values()))
    with raises_issue(path, code) as error:
        load_experiment(file)
    assert (path, code, *arms) in [
        (issue.path, issue.code, issue.arms)[: 2 + len(arms)] for issue in error.value.issues
    ]


def test_valid_sections_load_and_there_are_many_mistakes(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join(VALID_SECTIONS.values()))
    assert load_experiment(file).question.startswith("Which timing") and len(MISTAKES) >= 25


def test_all_mistakes_are_reported_together(tmp_path):
    file = tmp_path / "question.yaml"
    invalid_sections = {
        "question": "",
        "model": "model: {mixer: vectr, widht: 3}",
        "train": "train: {step: 1}",
        "seeds": "seeds: 0",
    }
    file.write_text("\n".join((VALID_SECTIONS | invalid_sections).values()))
    with pytest.raises(HqltError) as error:
        load_experiment(file)
    assert [(issue.line, issue.path) for issue in error.value.issues] == [
        (None, "question"),
        (3, "model.widht"),
        (3, "model.mixer"),
        (4, "train.step"),
        (5, "seeds"),
    ]
    first, *lines = str(error.value).splitlines()
    assert first == f"{file}:" and len(lines) == 5


def test_missing_file_is_an_error(tmp_path):
    with raises_issue("", "file_cannot_be_read") as error:
        load_experiment(tmp_path / "nowhere.yaml")
    assert error.value.issues[0].source == str(tmp_path / "nowhere.yaml")


def test_mostly_empty_fast_weights_are_a_warning(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text(
        "\n".join((VALID_SECTIONS | {"model": "model: {timing: {name: delayed_stream, window: 12}}"}).values())
    )
    (warning,) = load_experiment(file).warnings
    assert warning.startswith(
        f"{file}, line 3: model.timing: the fast weights are empty for the first 12 of the 19 tokens"
    )


@pytest.mark.parametrize("window", [12, 64])
def test_empty_fast_weights_can_be_allowed(window, tmp_path):
    file = tmp_path / "question.yaml"
    arms = "arms:\n  a: {}\n  b: {model.timing: {name: delayed_stream, window: %d}, allow: [empty_fast_weights]}"
    file.write_text("\n".join((VALID_SECTIONS | {"arms": arms % window}).values()))
    experiment = load_experiment(file)
    assert not experiment.warnings and "allow" not in experiment.arms[1].changes


@pytest.mark.parametrize(
    ("override", "path", "code", "source"),
    [
        ("train.lr", "--set", "not_path_and_value", ""),
        ("trian.lr=1", "trian.lr", "path_cannot_be_set", "--set trian.lr=1"),
        ("train.lrr=1", "train.lrr", "unknown_setting", "--set train.lrr"),
        ("model.width=${", "", "invalid_value", "--set model.width=${"),
        ("model.width.x=3", "model.width.x", "parent_has_no_settings", "--set model.width.x=3"),
    ],
)
def test_invalid_override_is_an_error(override, path, code, source, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join(VALID_SECTIONS.values()))
    with raises_issue(path, code) as error:
        load_experiment(file, [override])
    assert error.value.issues[0].source == source


def test_missing_data_of_a_task_are_reported_before_the_default_metrics(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("question: What?\ntask: {name: language, data: nowhere}\n")
    with pytest.raises(HqltError) as error:
        load_experiment(file)
    assert [issue.path for issue in error.value.issues] == ["task.data", "measure.select", "measure.report"]


def test_window_far_longer_than_any_sequence_is_a_warning(tmp_path):
    file = tmp_path / "question.yaml"
    valid = "\n".join(VALID_SECTIONS.values())
    file.write_text(valid.replace("window: 4", "window: 100000"))
    (warning,) = load_experiment(file).warnings
    assert "model.timing: the window holds 100,000 tokens" in warning and "A window of 39 gives" in warning
    for window in ("64", "null"):
        file.write_text(valid.replace("window: 4", f"window: {window}"))
        assert load_experiment(file).warnings == ()


@pytest.mark.parametrize(
    ("section", "suggestion"),
    [
        ("train: {learning_rate: 0.1}", "lr"),
        ("train: {batch: 8}", "batch_size"),
        ("train: {max_steps: 8}", "steps"),
        ("model: {num_layers: 2}", "layers"),
        ("model: {n_layers: 2}", "layers"),
        ("model: {num_heads: 2}", "heads"),
        ("model: {n_heads: 2}", "heads"),
        ("model: {hidden_size: 8}", "width"),
        ("model: {d_model: 8}", "width"),
        ("model: {dropout_p: 0.1}", "dropout"),
        ("model: {timing: {name: synchronous, sliding_window: 4}}", "window"),
    ],
)
def test_names_of_other_libraries_suggest_the_setting_of_this_one(section, suggestion, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join((VALID_SECTIONS | {section.partition(":")[0]: section}).values()))
    with pytest.raises(HqltError) as error:
        load_experiment(file)
    assert error.value.issues[0].hint.startswith(f"Did you mean '{suggestion}'? ")
