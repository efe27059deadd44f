"""The whole way, offline: train, evaluate, export, lm-eval's own class for transformers, generate; one result."""

import json
from pathlib import Path

import pytest
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from typer.testing import CliRunner

from hqlt_lab.api import load_experiment
from hqlt_lab.api.trained import chosen_folders
from hqlt_lab.cli.app import app
from hqlt_lab.evaluation.harness_model import HarnessModel
from hqlt_lab.evaluation.run import named, quiet
from hqlt_lab.evaluation.tasks import load_tasks
from hqlt_lab.generation.generate import generate
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.text_model import text_model_in
from hqlt_lab.hugging_face.write import export_cell
from tests.evaluation.test_harness_model import PAIRS, TEXTS, asked

pytestmark = pytest.mark.usefixtures("study")
LENGTH = 64
TASKS = ("piqa", "arc_easy", "hellaswag", "winogrande", "lambada_openai", "swde")


@pytest.fixture(scope="module")
def cell(study):
    return chosen_folders(load_experiment("study.yaml"), "runs", [])[0]


@pytest.fixture(scope="module")
def exported(cell, tmp_path_factory):
    return export_cell(cell, tmp_path_factory.mktemp("export") / "model").folder


@pytest.fixture(scope="module")
def ours(cell):
    return HarnessModel(text_model_in(cell), LENGTH, 3)


def theirs(exported, **options):
    with quiet():
        return HFLM(str(exported), device="cpu", dtype="float32", batch_size=3, max_length=LENGTH, **options)


def test_lm_eval_s_own_class_reads_the_same_likelihoods_out_of_the_export(ours, exported):
    requests = asked("loglikelihood", *PAIRS)
    with quiet():
        other = theirs(exported).loglikelihood(requests, disable_tqdm=True)
    for (value, greedy), (same, also) in zip(ours.loglikelihood(requests), other, strict=True):
        assert value == pytest.approx(same, abs=1e-4) and greedy == also


def test_and_the_same_likelihoods_of_whole_texts(ours, exported):
    requests = asked("loglikelihood_rolling", *((text,) for text in TEXTS))
    # without the token that it would put before a text and then predict, after the same token
    with quiet():
        other = theirs(exported, add_bos_token=False).loglikelihood_rolling(requests, disable_tqdm=True)
    assert ours.loglikelihood_rolling(requests) == pytest.approx(other, abs=1e-3, rel=1e-5)


def test_and_says_the_same(ours, exported):
    wish = {"until": ["\n", "."], "max_gen_toks": 12, "do_sample": False}
    requests = asked("generate_until", *((context, wish) for context in ("the memory", "a key has", "x" * 90)))
    with quiet():
        other = theirs(exported).generate_until(requests, disable_tqdm=True)
    assert ours.generate_until(requests) == other


def test_the_tasks_have_the_same_scores_by_the_cell_by_the_export_and_by_lm_eval_s_class(cell, exported, ours):
    words = ["--tasks", ",".join(TASKS), "--local", "local", "--length", str(LENGTH), "--json"]
    answers = []
    for target in (cell, exported):
        told = CliRunner().invoke(app, ["evaluate", str(target), *words], catch_exceptions=False)
        assert told.exit_code == 0, told.output
        answers.append(json.loads(told.stdout)[0]["metrics"])
    model, other = theirs(exported), {}
    with quiet():
        for name in TASKS:
            found = evaluate(model, load_tasks(name, Path("local"), ours.text_model), bootstrap_iters=0)
            other |= dict(named(found["results"]))
    assert answers[0] == pytest.approx(answers[1], rel=1e-4)
    assert answers[0] == pytest.approx(other, rel=1e-4) and len(other) == 10


def test_the_export_generates_what_the_cell_generates(cell, exported):
    options = Sampling(tokens=20, temperature=0)
    said = [
        [one.text for one in generate(text_model_in(folder), ["the key", ""], options)] for folder in (cell, exported)
    ]
    assert said[0] == said[1] and any(said[0])
