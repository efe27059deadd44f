"""One message has all mistakes of a file, each once, and none that is there only because of another."""

import re

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load

QUESTION = "question: Does it?\n"
TASK = "task: {name: parity, train_length: [3, 20], test_length: [20, 40]}\n"
ARMS = "arms: {a: {}, b: {model.mixer: sum}, c: {train.warmup: 3}}\n"

# text: what the complaints are about, all of them
FILES = {
    "words of three sections": (
        QUESTION + "task: {name: parity, lenght: 3}\nmodel: {widht: 64, update_rule: gated_dleta}\n"
        "train: {batchsize: 4}\n" + ARMS,
        ["task", "model.widht", "model.update_rule", "train.batchsize"],
    ),
    "words, types and values of one section": (
        QUESTION + TASK + "train: {stepz: 3, clip: fast, lr: -1, batch_size: 0, betas: [1, 2]}\n" + ARMS,
        ["train.stepz", "train.clip", "train.batch_size", "train.lr", "train.betas"],
    ),
    "a setting beside a composition": (
        QUESTION + "task: {name: parity, train_length: [20, 3]}\ntrain: {stepz: 3}\n" + ARMS,
        ["train.stepz", "task.train_length"],
    ),
    "a part's option beside a setting and a metric": (
        QUESTION + TASK + "model: {update_rule: {name: delta, max_beta: 3}}\ntrain: {stepz: 3}\n"
        "measure: {report: [test/acuracy]}\n" + ARMS,
        ["train.stepz", "measure.report", "model.update_rule.max_beta"],
    ),
    "all of what is measured": (
        QUESTION + TASK + "measure: {select: test/acuracy, report: [test/perplexty], direction: up, solvd: 3}\n",
        ["measure.solvd", "measure.direction", "measure.select", "measure.select", "measure.report"],
    ),
    "a direction beside names of nothing": (
        QUESTION + TASK + "measure: {select: valid/losss, report: [test/acuracy, eval/none/acc]}\n",
        ["measure.direction", "measure.select", "measure.report", "measure.report"],
    ),
    "answers to lm-eval are not selected by": (
        QUESTION + TASK + "measure: {select: eval/piqa/acc}\n",
        ["measure.select"],
    ),
    "names without a split": (
        QUESTION + TASK + "measure: {select: accuracy, report: [accuracy]}\n",
        ["measure.select", "measure.report"],
    ),
    "a name that has another in it": (QUESTION + TASK + "measure: {select: latest/accuracy}\n", ["measure.select"]),
    "what is measured, in a task that has none of the defaults": (
        QUESTION + "task: t_maze\nmeasure: {select: valid/success, report: [test/success], direction: up}\n",
        ["measure.direction"],
    ),
    "no task": (QUESTION + "model: {layers: 0}\nseeds: 0\n" + ARMS, ["seeds", "task", "model.layers"]),
    "an unknown section": (QUESTION + TASK + "modle: {}\ntrain: {stepz: 3}\n", ["modle", "train.stepz"]),
    "every arm": (
        QUESTION + TASK + "arms: {a: sum, b: {allow: 3}, c: {modl.mixer: sum, trian.lr: 3}}\ntrain: {stepz: 3}\n",
        ["arms.a", "arms.b.allow", "arms.c", "arms.c", "train.stepz"],
    ),
    "one wrong arm at many levels": (
        QUESTION + TASK + "arms: {a: {}, b: {modl.mixer: sum}}\ncross: {model.width: [8, 16], model.layers: [1, 2]}\n",
        ["arms.b"],
    ),
    "every axis": (
        QUESTION + TASK + "cross: {model.mixer: sum, model.width: []}\ntune: {train.lr: {low: 1}, train.warmup: 3}\n",
        ["cross.model.mixer", "cross.model.width", "tune.train.lr", "tune.train.warmup"],
    ),
    "sections of the wrong kind": (
        QUESTION + TASK + "model: 3\ntrain: [1]\narms: [a]\nquoted: 3\n",
        ["arms", "quoted", "model", "train"],
    ),
    "every reference": (
        QUESTION + TASK + "train: {steps: '${model.no}', lr: '${model.nor}'}\nops: {scan: fast}\n",
        ["train.steps", "train.lr", "ops.scan"],
    ),
    "a matched setting": (QUESTION + TASK + "match: {on: sizes, by: hight}\n", ["match.on", "match.by"]),
    "heads that would not divide over a width that is misspelt": (
        QUESTION + TASK + "model: {widht: 48, heads: 3}\n",
        ["model.widht"],
    ),
    "options of parts beside a setting that is misspelt": (
        QUESTION
        + TASK
        + "model: {widht: 48, update_rule: {name: delta, max_beta: 3}, timing: {name: synchronous, window: 0}}\n",
        ["model.widht", "model.update_rule.max_beta", "model.timing.window"],
    ),
    "options of two parts": (
        QUESTION + TASK + "model: {update_rule: {name: delta, max_beta: 3}, timing: {name: synchronous, window: 0}}\n",
        ["model.update_rule.max_beta", "model.timing.window"],
    ),
    "a size that torch cannot count": (
        QUESTION + TASK + "model: {width: 10000000000, heads: -3, update_rule: {name: delta, max_beta: 3}}\n",
        ["model.width", "model.heads", "model.update_rule.max_beta"],
    ),
    "the option of a part that stands in every third layer": (
        QUESTION + TASK + "model: {layers: 6, update_rule: [delta, delta, {name: delta, max_beta: 3}]}\n",
        ["model.update_rule.max_beta"],
    ),
    "the option of a part beside a part that there is not": (
        QUESTION + TASK + "model: {mixer: smu, update_rule: {name: delta, max_beta: 3}}\n",
        ["model.mixer", "model.update_rule.max_beta"],
    ),
    "parts that would not repeat over layers that are misspelt": (
        QUESTION + TASK + "model: {layres: 3, mixer: [sum, vector, sum]}\n",
        ["model.layres"],
    ),
    "rows with words in the place of numbers": (
        QUESTION + TASK + "published: {base: {test/accuracy: {best: '100', medain: 3}}}\n"
        "quoted: {Mamba: {test/accuracy: {median: OOM}}}\n",
        [
            "published.base.test/accuracy.best",
            "published.base.test/accuracy.medain",
            "quoted.Mamba.test/accuracy.median",
        ],
    ),
    "rows of arms that cannot be read": (
        QUESTION + TASK + "arms: {a: {}, b: sum}\npublished: {b: {test/accuracy: {best: 1}}}\n",
        ["arms.b"],
    ),
    "pruning beside a tune section that cannot be read": (
        QUESTION + TASK + "tune: {train.lr: 3}\nprune: {after: 10}\n",
        ["tune.train.lr"],
    ),
}


@pytest.mark.parametrize(("text", "about"), FILES.values(), ids=FILES)
def test_all_mistakes_are_told_at_once_and_each_once(text, about, tmp_path):
    file = tmp_path / "question.yaml"
    file.write_text(text)
    with pytest.raises(HqltError) as told:
        load(file)
    one_of_them = re.compile(r"^(?:.*yaml(?:, |: )|  )(?:line \d+: )?([^:]+): ", re.MULTILINE)
    assert sorted(one_of_them.findall(str(told.value))) == sorted(about)


def test_embeddings_can_be_tied_where_there_are_some(tmp_path):
    (tmp_path / "question.yaml").write_text(QUESTION + TASK + "model: {tie_embeddings: true}\n" + ARMS)
    assert load(tmp_path / "question.yaml").base["model"] == {"tie_embeddings": True}
    (tmp_path / "question.yaml").write_text(QUESTION + "task: t_maze\nmodel: {tie_embeddings: true}\n")
    with pytest.raises(HqltError, match="tie_embeddings: there are no embeddings to tie"):
        load(tmp_path / "question.yaml")


def test_what_is_proposed_to_select_by_can_be(tmp_path):
    (tmp_path / "question.yaml").write_text(QUESTION + TASK + "measure: {select: accuracy, report: [accuracy]}\n")
    with pytest.raises(HqltError) as told:
        load(tmp_path / "question.yaml")
    select, report = (line for line in str(told.value).splitlines() if "there is no metric" in line)
    assert "Did you mean 'valid/accuracy'?" in select and "Did you mean 'test/accuracy'?" in report
