"""A study of small language models that are evaluated with lm-eval tasks after training."""

from contextlib import chdir

import pytest

import hqlt_lab as lab
from tests.evaluation.local_datasets import write_local_datasets
from tests.tasks.small_corpus import prepare_small_corpus

STUDY_YAML = """
question: Which memory reads best?
task: {name: language, data: data, length: 64, eval_size: 4}
model: {width: 16, heads: 2, layers: 2, mlp_width: 16, timing: {name: synchronous, window: 8}}
train: {steps: 6, batch_size: 4, valid_every: 6, log_every: 3}
trainer: {accelerator: cpu, check_determinism: false}
launcher: {workers: 1, threads: 1}
arms: {vector: {}, softmax: {model.mixer: kv_only}}
tune: {train.lr: [1e-2, 1e-3]}
seeds: 1
measure:
  {select: valid/loss, report: [test/perplexity, eval/piqa/acc, eval/wikitext/word_perplexity], direction: minimize}
evaluate: {tasks: [piqa, wikitext], local: local}
published: {vector: {eval/piqa/acc: {best: 66.2}}}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The result of a finished study, with its folder as the working directory.

    Run once per test file, because tests add results to its cells.
    """
    folder = tmp_path_factory.mktemp("lm_eval")
    with chdir(folder):
        prepare_small_corpus(folder / "data", 200)
        write_local_datasets(folder / "local")
        (folder / "study.yaml").write_text(STUDY_YAML)
        yield lab.run("study.yaml")
