"""A corpus of mistakes, each with the sentence that helps.  All of them are told before anything trains."""

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load

GOOD = {
    "question": "question: Which timing keeps the fast weights' state tracking?",
    "task": "task: {name: parity, train_length: [3, 20], test_length: [20, 40]}",
    "model": "model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 4}}",
    "train": "train: {steps: 10, batch_size: 8}",
}

# name: (the sections that differ, what must be said)
MISTAKES = {
    "unknown section": ({"modle": "modle: {width: 8}"}, "modle: there is no such section. Did you mean 'model'?"),
    "no question": ({"question": ""}, "question: say in a sentence what the experiment asks."),
    "no task": ({"task": ""}, "task: what is learned? Name a task, such as {name: parity}."),
    "unknown task": ({"task": "task: paritty"}, "task: no task is called 'paritty'. Did you mean 'parity'?"),
    "unknown task option": (
        {"task": "task: {name: parity, trainlength: [3, 20]}"},
        "task: task 'parity' has no option 'trainlength'. Did you mean 'train_length'?",
    ),
    "ill-typed task option": (
        {"task": "task: {name: parity, train_length: 20}"},
        "task.train_length: task 'parity' takes list of int here, got 20.",
    ),
    "lengths the wrong way round": (
        {"task": "task: {name: parity, train_length: [20, 3]}"},
        "task.train_length: the shortest size comes first. Use [3, 20].",
    ),
    "unknown model setting": (
        {"model": "model: {widht: 8}"},
        "model.widht: there is no such setting. Did you mean 'width'?",
    ),
    "ill-typed model setting": ({"model": "model: {width: wide}"}, "model.width: int is needed, got 'wide'."),
    "heads do not divide": (
        {"model": "model: {width: 128, heads: 3}"},
        "model.heads: 128 channels do not divide over 3 heads. Use one of 1, 2, 4,",
    ),
    "vocabulary given": ({"model": "model: {vocabulary: 10}"}, "model.vocabulary: the task decides it; leave it out."),
    "unknown part": (
        {"model": "model: {update_rule: dleta}"},
        "model.update_rule: no update_rule is called 'dleta'. Did you mean 'delta'? Available: bounded_delta, delta,",
    ),
    "unknown part that every arm replaces": (
        {"model": "model: {mixer: vectr}", "cross": "cross: {model.mixer: [sum, vector]}"},
        "model.mixer: no mixer is called 'vectr'. Did you mean 'vector'?",
    ),
    "a setting of the model without its section": (
        {"arms": "arms: {a: {}, b: {mixer.name: sum}}"},
        "'mixer.name' cannot be set. Did you mean 'model.mixer.name'? Sections: task, model,",
    ),
    "unknown part like no other": (
        {"model": "model: {update_rule: zzzzzz}"},
        "One of your own comes in with its file: hqlt --with FILE.py ...",
    ),
    "unknown option of a part": (
        {"model": "model: {update_rule: {name: delta, beta: 2}}"},
        "model.update_rule: update_rule 'delta' has no option 'beta'. Did you mean 'max_beta'? Options: max_beta.",
    ),
    "ill-typed option of a part": (
        {"model": "model: {timing: {name: synchronous, window: eight}}"},
        "model.timing.window: timing 'synchronous' takes int | null here, got 'eight'.",
    ),
    "option out of range": (
        {"model": "model: {update_rule: {name: delta, max_beta: 3}}"},
        "model.update_rule.max_beta: a number in (0, 2] is needed, got 3.",
    ),
    "null for none": (
        {"model": "model: {positions: null}"},
        "model.positions: no positions is called None. Did you mean 'none'?",
    ),
    "code in the YAML": (
        {"model": "model: {mixer: {_target_: os.system, name: sum}}"},
        "model.mixer: mixer 'sum' has no option '_target_'.",
    ),
    "illegal pair": (
        {"model": "model: {feature_map: elu_plus_one}"},
        "model.feature_map: update_rule 'delta' diverges unless keys are unit vectors",
    ),
    "idle fast weights": (
        {"model": "model: {timing: {name: delayed_stream, window: 64}}"},
        "model.timing: with a delay of 64, not shorter than the 19 tokens of the longest training sequence of "
        "task 'parity', the fast weights would never see a token. Use a smaller window, or timing 'synchronous'. "
        "If it is meant, the arm says: allow: [idle_fast_weights].",
    ),
    "idle in one arm": (
        {"arms": "arms: {a: {}, b: {model.timing.name: delayed_chunk, model.timing.window: 19}}"},
        "arm 'b': model.timing: with a delay of 19,",
    ),
    "idle in one arm, meant in another with the same model": (
        {
            "model": "model: {timing: {name: delayed_stream, window: 64}}",
            "arms": "arms: {a: {allow: [idle_fast_weights]}, b: {train.lr: 0.1}}",
        },
        "arm 'b': model.timing: with a delay of 64,",
    ),
    "allowing what there is not": (
        {"arms": "arms: {a: {allow: [idle_fast_weight]}}"},
        "arms.a.allow: 'idle_fast_weight' cannot be allowed. Did you mean 'idle_fast_weights'? There is:",
    ),
    "allowing without a list": (
        {"arms": "arms: {a: {allow: idle_fast_weights}}"},
        "arms.a.allow: a list is needed, such as [idle_fast_weights]; got 'idle_fast_weights'.",
    ),
    "unknown train setting": (
        {"train": "train: {step: 10}"},
        "train.step: there is no such setting. Did you mean 'steps'?",
    ),
    "ill-typed train setting": ({"train": "train: {lr: fast}"}, "train.lr: float is needed, got 'fast'."),
    "impossible train setting": ({"train": "train: {steps: 0}"}, "train.steps: at least 1 is needed, got 0."),
    "batch that does not divide": (
        {"train": "train: {batch_size: 10, accumulate: 3}"},
        "train.accumulate: a batch of 10 does not divide into 3 pieces.",
    ),
    "unknown trainer setting": (
        {"trainer": "trainer: {max_epochs: 3}"},
        "trainer.max_epochs: there is no such setting. Settings: devices,",
    ),
    "precision": (
        {"trainer": "trainer: {precision: 8}"},
        "trainer.precision: auto | 32 | bf16-mixed | 16-mixed | 64 is needed, got 8.",
    ),
    "selecting on the test set": (
        {"measure": "measure: {select: test/accuracy}"},
        "measure.select: 'test/accuracy' is a test metric, and selection never sees the test set. Use 'valid/acc",
    ),
    "unknown metric": (
        {"measure": "measure: {report: [test/acuracy]}"},
        "measure.report: there is no metric 'test/acuracy'. Did you mean 'test/accuracy'?",
    ),
    "arm that is no mapping": (
        {"arms": "arms: {a: sum}"},
        "arms.a: an arm is a mapping of changes, such as {model.mixer: sum}; got 'sum'.",
    ),
    "arms that are a list": ({"arms": "arms: [sum, vector]"}, "arms: a mapping of named changes is needed"),
    "arm that changes no section": (
        {"arms": "arms: {a: {modl.mixer: sum}}"},
        "a: 'modl.mixer' cannot be set. Did you mean 'model'?",
    ),
    "arm with an option the new part lacks": (
        {
            "model": "model: {update_rule: {name: delta, max_beta: 2}}",
            "arms": "arms: {a: {}, b: {model.update_rule.name: retention}}",
        },
        "arm 'b': model.update_rule: update_rule 'retention' has no option 'max_beta'. Options: none. "
        "To leave the old options behind, replace the part: {model.update_rule: retention}.",
    ),
    "two arms that are the same": (
        {"arms": "arms: {a: {model.mixer: sum}, b: {model.mixer: {name: sum}}}"},
        "arms 'a' and 'b' are the same: nothing that matters differs.",
    ),
    "an axis that nobody reads": (
        {"model": "model: {mixer: kv_only}", "cross": "cross: {model.update_rule: [delta, retention]}"},
        "arms 'base, update_rule=delta' and 'base, update_rule=retention' are the same",
    ),
    "the same arm twice": (
        {"arms": "arms:\n  a: {model.mixer: sum}\n  a: {model.mixer: vector}"},
        "'a' stands there twice.",
    ),
    "cross without a list": (
        {"cross": "cross: {model.mixer: sum}"},
        "cross.model.mixer: a list of values is needed, got 'sum'.",
    ),
    "a value twice": ({"cross": "cross: {model.mixer: [sum, sum]}"}, "cross.model.mixer: 'sum' stands there twice."),
    "cross and one at a time": (
        {"cross": "cross: {model.mixer: [sum]}", "one_at_a_time": "one_at_a_time: {train.lr: [1]}"},
        "cross, one_at_a_time: use one of them.",
    ),
    "unknown part in a cross": (
        {"cross": "cross: {model.mixer: [sum, vectr]}"},
        "model.mixer: no mixer is called 'vectr'. Did you",
    ),
    "range the wrong way round": (
        {"tune": "tune: {train.lr: {low: 1, high: 0.1}}"},
        "tune.train.lr: low: 1 is not below high, 0.1.",
    ),
    "half a range": ({"tune": "tune: {train.lr: {low: 1}}"}, "A range is {low, high, log, trials}."),
    "no seeds": ({"seeds": "seeds: 0"}, "seeds: a number of seeds or a list of them is needed, got 0."),
    "a seed twice": ({"seeds": "seeds: [1, 1]"}, "seeds: [1, 1] holds a seed twice."),
    "published row without an arm": (
        {"arms": "arms: {sync: {}}", "published": "published: {snc: {test/accuracy: {best: 1}}}"},
        "published.snc: no arm is called 'snc'. Did you mean 'sync'? Arms: sync.",
    ),
    "quoted row without a metric": ({"quoted": "quoted: {Mamba: 100}"}, "quoted.Mamba: {metric: {best: 100.0,"),
    "agent without a world": (
        {"agent": "agent: {entropy: 0.1}"},
        "agent: task 'parity' has examples, and agents act in worlds alone. Leave it out.",
    ),
    "unknown agent setting": (
        {"task": "task: t_maze", "agent": "agent: {gamma: 0.9}"},
        "agent.gamma: there is no such setting. Settings: discount,",
    ),
    "impossible agent settings": (
        {"task": "task: t_maze", "agent": "agent: {discount: 2, target_rate: 0}"},
        "agent.discount: a number from 0 to 1 is needed, got 2.\n  line 5: agent.target_rate: more than 0 is needed",
    ),
    "an agent on several devices": (
        {"task": "task: t_maze", "trainer": "trainer: {devices: 2}"},
        "trainer.devices: task 't_maze' is a world: an agent acts and learns in one process. Use 1.",
    ),
    "an agent that is probed": (
        {"task": "task: t_maze", "train": "train: {probe_every: 10}"},
        "train.probe_every: task 't_maze' is a world: probes look at examples, and there are none. Use 0.",
    ),
    "accuracy in a world": (
        {"task": "task: t_maze", "measure": "measure: {select: valid/accuracy}"},
        "measure.select: there is no metric 'valid/accuracy'.",
    ),
    "dropping everything": ({"model": "model: {dropout: 1}"}, "model.dropout: a share from 0 to less than 1 is needed"),
    "interpolation to nowhere": (
        {"train": "train: {steps: '${model.length}'}"},
        "train.steps: ${model.length} refers to nothing",
    ),
    "not YAML": ({"train": "train: {steps: 10"}, "question.yaml, line 4: the bracket { is not closed"),
    "not a mapping": (
        {name: "" for name in GOOD} | {"list": "- a\n- b"},
        "an experiment is a mapping (question: ..., task: ..., ...)",
    ),
}


@pytest.mark.parametrize(("sections", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_place_and_the_nearest_right_thing(sections, says, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join((GOOD | sections).values()))
    with pytest.raises(HqltError) as told:
        load(file)
    assert says in str(told.value)


def test_the_corpus_is_large_and_the_good_file_good(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join(GOOD.values()))
    assert load(file).question.startswith("Which timing") and len(MISTAKES) >= 25


def test_all_mistakes_are_told_at_once(tmp_path):
    file = tmp_path / "question.yaml"
    wrong = {
        "question": "",
        "model": "model: {mixer: vectr, widht: 3}",
        "train": "train: {step: 1}",
        "seeds": "seeds: 0",
    }
    file.write_text("\n".join((GOOD | wrong).values()))
    with pytest.raises(HqltError) as told:
        load(file)
    first, *lines = str(told.value).splitlines()
    assert first == f"{file}:" and [line.split(": there")[0].split(": ")[:2] for line in lines] == [
        ["  question", "say in a sentence what the experiment asks."],
        ["  line 3", "model.widht"],
        ["  line 3", "model.mixer"],
        ["  line 4", "train.step"],
        ["  line 5", "seeds"],
    ]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(HqltError, match=r"nowhere\.yaml: cannot be read \(No such file or directory\)"):
        load(tmp_path / "nowhere.yaml")


def test_fast_weights_that_are_mostly_empty_are_a_warning(tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join((GOOD | {"model": "model: {timing: {name: delayed_stream, window: 12}}"}).values()))
    (warning,) = load(file).warnings
    assert warning.startswith(
        f"{file}, line 3: model.timing: the fast weights are empty for the first 12 of the 19 tokens"
    )


@pytest.mark.parametrize("window", [12, 64])
def test_idle_fast_weights_can_be_meant(window, tmp_path):
    file = tmp_path / "question.yaml"
    arms = "arms:\n  a: {}\n  b: {model.timing: {name: delayed_stream, window: %d}, allow: [idle_fast_weights]}"
    file.write_text("\n".join((GOOD | {"arms": arms % window}).values()))
    experiment = load(file)
    assert not experiment.warnings and "allow" not in experiment.arms[1].changes


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.lr", "--set train.lr: a setting is given as path=value"),
        ("trian.lr=1", "--set trian.lr=1: 'trian.lr' cannot be set. Did you mean 'train'?"),
        ("train.lrr=1", "train.lrr: there is no such setting. Did you mean 'lr'?"),
        ("model.width=${", "cannot be read as a value"),
        ("model.width.x=3", "model.width is 16, which has no 'x'. Set model.width as a whole."),
    ],
)
def test_a_mistaken_override_is_told(override, says, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text("\n".join(GOOD.values()))
    with pytest.raises(HqltError) as told:
        load(file, [override])
    assert says in str(told.value)
