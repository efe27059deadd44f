"""One error reports all issues of a file, each once, and none that is only a consequence of another."""

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.load_experiment import load_experiment
from tests.issues import raises_issue

QUESTION = "question: Does it?\n"
TASK = "task: {name: parity, train_length: [3, 20], test_length: [20, 40]}\n"
ARMS = "arms: {a: {}, b: {model.mixer: sum}, c: {train.warmup: 3}}\n"

# name: (text of the file, paths of all expected issues)
FILES = {
    "unknown names in three sections": (
        QUESTION + "task: {name: parity, lenght: 3}\nmodel: {widht: 64, update_rule: gated_dleta}\n"
        "train: {batchsize: 4}\n" + ARMS,
        ["task.lenght", "model.widht", "model.update_rule", "train.batchsize"],
    ),
    "unknown names, wrong types and invalid values in one section": (
        QUESTION + TASK + "train: {stepz: 3, clip: fast, lr: -1, batch_size: 0, betas: [1, 2]}\n" + ARMS,
        ["train.stepz", "train.clip", "train.batch_size", "train.lr", "train.betas"],
    ),
    "an unknown setting and an invalid task option": (
        QUESTION + "task: {name: parity, train_length: [20, 3]}\ntrain: {stepz: 3}\n" + ARMS,
        ["train.stepz", "task.train_length"],
    ),
    "a component option, an unknown setting and an unknown metric": (
        QUESTION + TASK + "model: {update_rule: {name: delta, max_beta: 3}}\ntrain: {stepz: 3}\n"
        "measure: {report: [test/acuracy]}\n" + ARMS,
        ["train.stepz", "measure.report", "model.update_rule.max_beta"],
    ),
    "every setting of the measure section": (
        QUESTION + TASK + "measure: {select: test/acuracy, report: [test/perplexty], direction: up, solvd: 3}\n",
        ["measure.solvd", "measure.direction", "measure.select", "measure.select", "measure.report"],
    ),
    "a wrong direction and unknown metrics": (
        QUESTION + TASK + "measure: {select: valid/losss, report: [test/acuracy, eval/none/acc]}\n",
        ["measure.direction", "measure.select", "measure.report", "measure.report"],
    ),
    "lm-eval metric for selection": (
        QUESTION + TASK + "measure: {select: eval/piqa/acc}\n",
        ["measure.select"],
    ),
    "metric names without a split": (
        QUESTION + TASK + "measure: {select: accuracy, report: [accuracy]}\n",
        ["measure.select", "measure.report"],
    ),
    "a metric name that contains another": (
        QUESTION + TASK + "measure: {select: latest/accuracy}\n",
        ["measure.select"],
    ),
    "a wrong direction in a task without the default metrics": (
        QUESTION + "task: t_maze\nmeasure: {select: valid/success, report: [test/success], direction: up}\n",
        ["measure.direction"],
    ),
    "no task": (QUESTION + "model: {layers: 0}\nseeds: 0\n" + ARMS, ["seeds", "task", "model.layers"]),
    "an unknown section": (QUESTION + TASK + "modle: {}\ntrain: {stepz: 3}\n", ["modle", "train.stepz"]),
    "every arm": (
        QUESTION + TASK + "arms: {a: sum, b: {allow: 3}, c: {modl.mixer: sum, trian.lr: 3}}\ntrain: {stepz: 3}\n",
        ["arms.a", "arms.b.allow", "arms.c.modl.mixer", "arms.c.trian.lr", "train.stepz"],
    ),
    "one wrong arm at many levels": (
        QUESTION + TASK + "arms: {a: {}, b: {modl.mixer: sum}}\ncross: {model.width: [8, 16], model.layers: [1, 2]}\n",
        ["arms.b.modl.mixer"],
    ),
    "every axis": (
        QUESTION + TASK + "cross: {model.mixer: sum, model.width: []}\ntune: {train.lr: {low: 1}, train.warmup: 3}\n",
        ["cross.model.mixer", "cross.model.width", "tune.train.lr", "tune.train.warmup"],
    ),
    "sections of the wrong type": (
        QUESTION + TASK + "model: 3\ntrain: [1]\narms: [a]\nquoted: 3\n",
        ["arms", "quoted", "model", "train"],
    ),
    "every dangling reference": (
        QUESTION + TASK + "train: {steps: '${model.no}', lr: '${model.nor}'}\nops: {scan: fast}\n",
        ["train.steps", "train.lr", "ops.scan"],
    ),
    "every setting of the match section": (
        QUESTION + TASK + "match: {on: sizes, by: hight}\n",
        ["match.on", "match.by"],
    ),
    "heads that do not divide the default width, with a misspelt width": (
        QUESTION + TASK + "model: {widht: 48, heads: 3}\n",
        ["model.widht"],
    ),
    "component options and a misspelt setting": (
        QUESTION
        + TASK
        + "model: {widht: 48, update_rule: {name: delta, max_beta: 3}, timing: {name: synchronous, window: 0}}\n",
        ["model.widht", "model.update_rule.max_beta", "model.timing.window"],
    ),
    "options of two components": (
        QUESTION + TASK + "model: {update_rule: {name: delta, max_beta: 3}, timing: {name: synchronous, window: 0}}\n",
        ["model.update_rule.max_beta", "model.timing.window"],
    ),
    "a size that is too large for torch": (
        QUESTION + TASK + "model: {width: 10000000000, heads: -3, update_rule: {name: delta, max_beta: 3}}\n",
        ["model.width", "model.heads", "model.update_rule.max_beta"],
    ),
    "the option of a component in every third layer": (
        QUESTION + TASK + "model: {layers: 6, update_rule: [delta, delta, {name: delta, max_beta: 3}]}\n",
        ["model.update_rule.max_beta"],
    ),
    "a component option and an unknown component": (
        QUESTION + TASK + "model: {mixer: smu, update_rule: {name: delta, max_beta: 3}}\n",
        ["model.mixer", "model.update_rule.max_beta"],
    ),
    "component lists that do not fit the default layers, with misspelt layers": (
        QUESTION + TASK + "model: {layres: 3, mixer: [sum, vector, sum]}\n",
        ["model.layres"],
    ),
    "published rows with text in place of numbers": (
        QUESTION + TASK + "published: {base: {test/accuracy: {best: '100', medain: 3}}}\n"
        "quoted: {Mamba: {test/accuracy: {median: OOM}}}\n",
        [
            "published.base.test/accuracy.best",
            "published.base.test/accuracy.medain",
            "quoted.Mamba.test/accuracy.median",
        ],
    ),
    "published rows of an invalid arm": (
        QUESTION + TASK + "arms: {a: {}, b: sum}\npublished: {b: {test/accuracy: {best: 1}}}\n",
        ["arms.b"],
    ),
    "pruning with an invalid tune section": (
        QUESTION + TASK + "tune: {train.lr: 3}\nprune: {after: 10}\n",
        ["tune.train.lr"],
    ),
}


@pytest.mark.parametrize(("text", "issue_paths"), FILES.values(), ids=FILES)
def test_all_issues_are_reported_together_and_each_once(text, issue_paths, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text(text)
    with pytest.raises(HqltError) as error:
        load_experiment(file)
    assert sorted(issue.path for issue in error.value.issues) == sorted(issue_paths)


def test_embeddings_can_be_tied_only_in_a_task_with_tokens(tmp_path):
    (tmp_path / "question.yaml").write_text(QUESTION + TASK + "model: {tie_embeddings: true}\n" + ARMS)
    assert load_experiment(tmp_path / "question.yaml").base["model"] == {"tie_embeddings": True}
    (tmp_path / "question.yaml").write_text(QUESTION + "task: t_maze\nmodel: {tie_embeddings: true}\n")
    with raises_issue("model.tie_embeddings", "no_embeddings"):
        load_experiment(tmp_path / "question.yaml")


def test_suggested_selection_metric_is_a_validation_metric(tmp_path):
    (tmp_path / "question.yaml").write_text(QUESTION + TASK + "measure: {select: accuracy, report: [accuracy]}\n")
    with pytest.raises(HqltError) as error:
        load_experiment(tmp_path / "question.yaml")
    hints = {issue.path: issue.hint for issue in error.value.issues if issue.code == "unknown_metric"}
    assert "'valid/accuracy'?" in hints["measure.select"] and "'test/accuracy'?" in hints["measure.report"]


def test_missing_data_are_reported_before_the_metrics_of_their_task(tmp_path):
    task = f"task: {{name: language, data: {tmp_path}/nowhere}}\n"
    (tmp_path / "question.yaml").write_text(QUESTION + task + "measure: {select: valid/accuracy}\n")
    with pytest.raises(HqltError) as error:
        load_experiment(tmp_path / "question.yaml")
    assert [issue.path for issue in error.value.issues][:2] == ["task.data", "measure.select"]
