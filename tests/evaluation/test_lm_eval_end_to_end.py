"""End to end and offline: a cell, its export, and lm-eval's own class for transformers give the same results."""

import json
from pathlib import Path

import pytest
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from typer.testing import CliRunner

from hqlt_lab.api import load_experiment
from hqlt_lab.api.trained_cells import require_reported_folders
from hqlt_lab.cli.app import app
from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
from hqlt_lab.evaluation.lm_eval_tasks import load_tasks
from hqlt_lab.evaluation.run_lm_eval_task import flatten_metrics, silence_lm_eval
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_generation import generate
from hqlt_lab.generation.text_model import load_text_model
from hqlt_lab.hugging_face.export_writer import export_cell
from hqlt_lab.hugging_face.registration import register_hugging_face
from tests.evaluation.test_lm_eval_model import PAIRS, TEXTS, make_instances

pytestmark = pytest.mark.usefixtures("study")
LENGTH = 64
TASKS = ("piqa", "arc_easy", "hellaswag", "winogrande", "lambada_openai", "swde")


@pytest.fixture(scope="module")
def cell(study):
    return require_reported_folders(load_experiment("study.yaml"), "runs", [])[0]


@pytest.fixture(scope="module")
def exported(cell, tmp_path_factory):
    return export_cell(cell, tmp_path_factory.mktemp("export") / "model").folder


@pytest.fixture(scope="module")
def cell_model(cell):
    return LmEvalModel(load_text_model(cell), LENGTH, 3)


def load_hflm(exported, **options):
    register_hugging_face()
    with silence_lm_eval():
        return HFLM(str(exported), device="cpu", dtype="float32", batch_size=3, max_length=LENGTH, **options)


def test_hflm_computes_the_same_loglikelihoods_from_the_export(cell_model, exported):
    requests = make_instances("loglikelihood", *PAIRS)
    with silence_lm_eval():
        expected = load_hflm(exported).loglikelihood(requests, disable_tqdm=True)
    for (value, greedy), (expected_value, expected_greedy) in zip(
        cell_model.loglikelihood(requests), expected, strict=True
    ):
        assert value == pytest.approx(expected_value, abs=1e-4) and greedy == expected_greedy


def test_hflm_computes_the_same_rolling_loglikelihoods_from_the_export(cell_model, exported):
    requests = make_instances("loglikelihood_rolling", *((text,) for text in TEXTS))
    # without BOS: HFLM would prepend it twice and predict the second one
    with silence_lm_eval():
        expected = load_hflm(exported, add_bos_token=False).loglikelihood_rolling(requests, disable_tqdm=True)
    assert cell_model.loglikelihood_rolling(requests) == pytest.approx(expected, abs=1e-3, rel=1e-5)


def test_hflm_generates_the_same_text_from_the_export(cell_model, exported):
    options = {"until": ["\n", "."], "max_gen_toks": 12, "do_sample": False}
    contexts = ("the memory", "a key has", "x" * 90)
    requests = make_instances("generate_until", *((context, options) for context in contexts))
    with silence_lm_eval():
        expected = load_hflm(exported).generate_until(requests, disable_tqdm=True)
    assert cell_model.generate_until(requests) == expected


def test_task_metrics_of_the_cell_the_export_and_hflm_are_equal(cell, exported, cell_model):
    options = ["--tasks", ",".join(TASKS), "--local", "local", "--length", str(LENGTH), "--json"]
    metrics = []
    for target in (cell, exported):
        result = CliRunner().invoke(app, ["lm-eval", str(target), *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        metrics.append(json.loads(result.stdout)[0]["metrics"])
    hflm, hflm_metrics = load_hflm(exported), {}
    with silence_lm_eval():
        for name in TASKS:
            output = evaluate(hflm, load_tasks(name, Path("local"), cell_model.text_model), bootstrap_iters=0)
            hflm_metrics |= dict(flatten_metrics(output["results"]))
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)
    assert metrics[0] == pytest.approx(hflm_metrics, rel=1e-4) and len(hflm_metrics) == 10


def test_export_generates_the_same_text_as_the_cell(cell, exported):
    options = Sampling(tokens=20, temperature=0)
    texts = [
        [generated.text for generated in generate(load_text_model(folder), ["the key", ""], options)]
        for folder in (cell, exported)
    ]
    assert texts[0] == texts[1] and any(texts[0])
