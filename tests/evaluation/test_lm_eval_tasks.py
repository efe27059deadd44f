"""lm-eval tasks on local documents: prompts, metrics, protocols, and the retrieval tasks of the paper."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from lm_eval.api.instance import Instance
from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

from hqlt_lab.errors import StoreError
from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
from hqlt_lab.evaluation.lm_eval_runner import LazyTextModel, LmEvalRequest, run_tasks
from hqlt_lab.evaluation.lm_eval_task_variants import centered_window, excerpt_report, format_prompt
from hqlt_lab.evaluation.lm_eval_tasks import load_tasks
from hqlt_lab.experiment.lm_eval_section import TASK_SETS
from hqlt_lab.rundir.lm_eval_results import collect_metric_values
from tests.evaluation.local_datasets import DOCUMENTS, FACT, write_local_datasets
from tests.generation.text_models import untrained_text_model

LENGTH = 256
TASK_YAML = """
task: mine
dataset_path: json
dataset_kwargs: {data_files: {validation: FILE}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "{{goal}} "
doc_to_choice: "{{[sol1, sol2]}}"
doc_to_target: label
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 7}
"""


@pytest.fixture(scope="module")
def text_model():
    return untrained_text_model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_local_datasets(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def results(text_model, folder):
    """The results of both task sets on all local documents."""
    request = LmEvalRequest(tasks=["general", "retrieval"], length=LENGTH, local=folder, batch_size=3)
    return run_tasks(LazyTextModel(48, lambda: text_model), request)


def score_continuation(text_model, context, continuation):
    model = LmEvalModel(text_model, LENGTH)
    return model.loglikelihood([Instance("loglikelihood", {}, (context, continuation), 0)])[0][0]


def test_results_have_all_columns_of_both_sets_and_their_averages(results):
    assert not results.failures
    values = {name: metric.value for name, metric in collect_metric_values(results.task_results).items()}
    assert {column.name for columns in TASK_SETS.values() for column in columns} <= set(values)
    general = [values[column.name] for column in TASK_SETS["general"] if column.is_averaged]
    assert len(general) == 6 and values["eval/general/average"] == pytest.approx(sum(general) / 6)
    retrieval = [values[column.name] for column in TASK_SETS["retrieval"] if column.is_averaged]
    assert len(retrieval) == 3 and values["eval/retrieval/average"] == pytest.approx(sum(retrieval) / 3)


def find_result(results, task):
    (result,) = (result for result in results.task_results if result.task == task)
    return result


def test_multiple_choice_accuracy_counts_the_most_probable_answers_in_percent(results, text_model):
    correct = []
    for document in DOCUMENTS["piqa"]:
        question = f"Question: {document['goal']}\nAnswer:"
        scores = [score_continuation(text_model, question, f" {document[name]}") for name in ("sol1", "sol2")]
        correct.append(scores.index(max(scores)) == document["label"])
    result = find_result(results, "piqa")
    assert result.metrics["eval/piqa/acc"] == pytest.approx(100 * sum(correct) / 3)
    assert result.errors.keys() == {"eval/piqa/acc", "eval/piqa/acc_norm"}


def test_word_perplexity_uses_the_word_counts_of_the_original_pages(results, text_model):
    texts = [wikitext_detokenizer(document) for document in DOCUMENTS["wikitext"]]
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
    total = sum(LmEvalModel(text_model, LENGTH).loglikelihood_rolling(requests))
    # lm-eval also counts an empty word at each end of a page
    num_words = sum(len(document["page"].split()) + 2 for document in DOCUMENTS["wikitext"])
    perplexity = find_result(results, "wikitext").metrics["eval/wikitext/word_perplexity"]
    assert perplexity == pytest.approx(math.exp(-total / num_words), rel=1e-6)


def test_protocol_describes_how_a_metric_was_computed(results):
    protocol = find_result(results, "piqa").protocol
    assert (protocol.length, protocol.limit, protocol.documents) == (LENGTH, None, 3)
    assert (protocol.shots, protocol.version) == (0, "1.0")
    assert str(protocol).startswith("lm-eval 0.4.") and "all 3 documents" in str(protocol)


def test_limit_on_the_documents_is_a_different_protocol(text_model, folder):
    lazy_model = LazyTextModel(48, lambda: text_model)
    all_documents = LmEvalRequest(tasks=["piqa"], length=LENGTH, local=folder)
    two_documents = replace(all_documents, limit=2)
    limited = run_tasks(lazy_model, two_documents)
    protocol = limited.task_results[0].protocol
    assert protocol.documents == 2 and "the first 2 documents" in str(protocol)
    complete = run_tasks(lazy_model, all_documents, known_results=limited.task_results)
    assert complete.has_new_results and complete.task_results[0].protocol.documents == 3
    assert not run_tasks(lazy_model, two_documents, known_results=limited.task_results).has_new_results


def test_retrieval_generates_up_to_a_newline_or_48_tokens_from_a_stripped_prompt(text_model, folder):
    for name in ("swde", "squad_newline", "fda", "fda_original"):
        task = load_tasks(name, folder, text_model)["tasks"][name]
        task.build_all_requests(limit=None, rank=0, world_size=1)
        (request,) = task.instances
        assert request.args[1] == {"until": ["\n"], "max_gen_toks": 48}
        assert request.args[0] == request.args[0].strip()
        assert task.process_results(request.doc, ["by ada, in TURIN"]) == {"contains": 1}
        assert task.process_results(request.doc, ["nobody knows"]) == {"contains": 0}


def test_long_report_is_cut_around_the_first_key_or_value(text_model):
    report = "w" * 2000 + " " + FACT + " " + "z" * 2000
    text = excerpt_report({"text": f" {report} ", "key": "PLACE", "value": "turin"}, text_model)
    first = report.index("Turin")
    assert text == report[first - 475 : first + 475] and len(text_model.encode(text)) == 950
    assert centered_window(100, 5000) == (0, 950) and centered_window(4900, 5000) == (4425, 5000)
    without_match = excerpt_report({"text": report, "key": "color", "value": "green"}, text_model)
    assert without_match == report[-475:]


def test_prompt_ends_with_the_key_once():
    assert format_prompt("Made by Ada.\nplace: Place:", "place") == "Made by Ada.\nplace: . Place:"
    assert format_prompt("Made by Ada.\n\n", "place") == "Made by Ada. Place:"
    assert format_prompt("It is...", "type of device") == "It is. Type of device:"


def test_user_task_file_can_be_run(text_model, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS["piqa"]))
    file = tmp_path / "my_task.yaml"
    file.write_text(TASK_YAML.replace("FILE", str(tmp_path / "some.jsonl")))
    results = run_tasks(LazyTextModel(48, lambda: text_model), LmEvalRequest(tasks=[str(file)], length=64))
    assert not results.failures
    (result,) = results.task_results
    assert set(result.metrics) == {"eval/mine/acc"} and result.protocol.version == "7" and result.protocol.source


def test_failure_to_load_a_task_is_reported_and_the_others_are_run(text_model, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (failure,) = run_tasks(LazyTextModel(48, lambda: text_model), LmEvalRequest(tasks=["piqa"])).failures
    assert "piqa: its dataset baber/piqa could not be loaded" in failure
    assert "HF_HOME" in failure and "FOLDER/piqa.jsonl" in failure
    folder = write_local_datasets(tmp_path / "two", ("arc_easy",))
    (folder / "piqa.jsonl").write_text('{"question": "no goal"}\n')
    saved = []
    request = LmEvalRequest(tasks=["hellaswag", "piqa", "arc_easy"], local=folder)
    missing, invalid = run_tasks(
        LazyTextModel(48, lambda: text_model),
        request,
        save_result=lambda result, samples: saved.append((result, samples)),
    ).failures
    assert "hellaswag: the file " in missing and "Files in the folder: arc_easy.jsonl, piqa.jsonl." in missing
    assert "these documents do not fit task piqa" in invalid and "fields question" in invalid
    assert [result.task for result, _ in saved] == ["arc_easy"] and len(saved[0][1]) == 1


def test_invalid_lines_in_a_local_file_are_errors(text_model, tmp_path):
    for text in ("", "{", "[1]\n"):
        Path(tmp_path / "piqa.jsonl").write_text(text)
        with pytest.raises(StoreError, match=r"piqa\.jsonl"):
            load_tasks("piqa", tmp_path, text_model)
