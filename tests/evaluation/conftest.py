"""A study of small language models, run with tasks of lm-eval after training."""

from contextlib import chdir

import pytest

import hqlt_lab as lab
from tests.evaluation.questions import local
from tests.tasks.texts import prepared

STUDY = """
question: Which memory reads best?
task: {name: language, data: data, length: 64, eval_size: 4}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 8}}
train: {steps: 6, batch_size: 4, valid_every: 6, log_every: 3}
trainer: {accelerator: cpu, canary: false}
launcher: {workers: 1, threads: 1}
arms: {vector: {}, softmax: {model.mixer: kv_only}}
tune: {train.lr: [1e-2, 1e-3]}
seeds: 1
measure:
  {select: valid/loss, report: [test/perplexity, eval/piqa/acc, eval/wikitext/word_perplexity], direction: minimize}
evaluate: {tasks: [piqa, wikitext], local: local}
published: {vector: {eval/piqa/acc: {best: 66.2}}}
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Where a study was run, and what came of it: once for all who ask."""
    folder = tmp_path_factory.mktemp("harness")
    with chdir(folder):
        prepared(folder / "data", 200)
        local(folder / "local")
        (folder / "study.yaml").write_text(STUDY)
        return folder, lab.run("study.yaml")


@pytest.fixture(scope="module")
def study(trained):
    """What came of the run, in the folder that is the working folder now."""
    folder, finished = trained
    with chdir(folder):
        yield finished
