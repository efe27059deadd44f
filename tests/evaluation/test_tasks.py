"""Every form of task, on documents in local files: lm-eval's prompts and metrics, and the retrieval protocols."""

import json
import math
from pathlib import Path

import pytest
from lm_eval.api.instance import Instance
from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

from hqlt_lab.errors import StoreError
from hqlt_lab.evaluation.ask import Asked, Source, ask
from hqlt_lab.evaluation.harness_model import HarnessModel
from hqlt_lab.evaluation.retrieval import cut, prompt, window
from hqlt_lab.evaluation.tasks import load_tasks
from hqlt_lab.experiment.evaluation import SETS
from hqlt_lab.train.harness_file import numbers_of
from tests.evaluation.questions import DOCUMENTS, FACT, local
from tests.generation.speakers import untrained

LENGTH = 256
OWN = """
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
def speaker():
    return untrained()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return local(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def answered(speaker, folder):
    """Both sets, every document."""
    asked = Asked(tasks=["general", "retrieval"], length=LENGTH, local=folder, batch_size=3)
    return ask(Source(48, lambda: speaker), asked)


def likelihood(speaker, context, continuation):
    model = HarnessModel(speaker, LENGTH)
    return model.loglikelihood([Instance("loglikelihood", {}, (context, continuation), 0)])[0][0]


def test_every_column_of_both_sets_is_there_with_their_averages(answered):
    assert not answered.troubles
    found = {name: number.value for name, number in numbers_of(answered.answers).items()}
    assert {column.name for columns in SETS.values() for column in columns} <= set(found)
    six = [found[column.name] for column in SETS["general"] if column.counts]
    assert len(six) == 6 and found["eval/general/average"] == pytest.approx(sum(six) / 6)
    three = [found[column.name] for column in SETS["retrieval"] if column.counts]
    assert len(three) == 3 and found["eval/retrieval/average"] == pytest.approx(sum(three) / 3)


def test_multiple_choice_is_the_likeliest_answer_in_percent(answered, speaker):
    right = []
    for document in DOCUMENTS["piqa"]:
        question = f"Question: {document['goal']}\nAnswer:"
        found = [likelihood(speaker, question, f" {document[name]}") for name in ("sol1", "sol2")]
        right.append(found.index(max(found)) == document["label"])
    (answer,) = (one for one in answered.answers if one.task == "piqa")
    assert answer.metrics["eval/piqa/acc"] == pytest.approx(100 * sum(right) / 3)
    assert answer.errors.keys() == {"eval/piqa/acc", "eval/piqa/acc_norm"}


def test_the_perplexity_of_pages_counts_the_words_they_had(answered, speaker):
    texts = [wikitext_detokenizer(document) for document in DOCUMENTS["wikitext"]]
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
    total = sum(HarnessModel(speaker, LENGTH).loglikelihood_rolling(requests))
    words = sum(len(document["page"].split()) + 2 for document in DOCUMENTS["wikitext"])  # and an empty one at each end
    (answer,) = (one for one in answered.answers if one.task == "wikitext")
    assert answer.metrics["eval/wikitext/word_perplexity"] == pytest.approx(math.exp(-total / words), rel=1e-6)


def test_a_protocol_tells_how_a_number_was_made(answered):
    (answer,) = (one for one in answered.answers if one.task == "piqa")
    told = answer.protocol
    assert (told.length, told.limit, told.documents, told.shots, told.version) == (LENGTH, None, 3, 0, "1.0")
    assert str(told).startswith("lm-eval 0.4.") and "all 3 documents" in str(told)


def test_part_of_the_documents_is_another_protocol(speaker, folder):
    source = Source(48, lambda: speaker)
    some = ask(source, Asked(tasks=["piqa"], length=LENGTH, local=folder, limit=2))
    assert some.answers[0].protocol.documents == 2 and "the first 2 documents" in str(some.answers[0].protocol)
    again = ask(source, Asked(tasks=["piqa"], length=LENGTH, local=folder), known=some.answers)
    assert again.new and again.answers[0].protocol.documents == 3
    assert not ask(source, Asked(tasks=["piqa"], length=LENGTH, local=folder, limit=2), known=some.answers).new


def test_retrieval_asks_until_the_newline_for_48_tokens_of_a_trimmed_text(speaker, folder):
    for name in ("swde", "squad_newline", "fda", "fda_original"):
        task = load_tasks(name, folder, speaker)["tasks"][name]
        task.build_all_requests(limit=None, rank=0, world_size=1)
        (request,) = task.instances
        assert request.args[1] == {"until": ["\n"], "max_gen_toks": 48}
        assert request.args[0] == request.args[0].strip()
        assert task.process_results(request.doc, ["by ada, in TURIN"]) == {"contains": 1}
        assert task.process_results(request.doc, ["nobody knows"]) == {"contains": 0}


def test_a_long_report_is_cut_around_the_first_key_or_value(speaker):
    long = "w" * 2000 + " " + FACT + " " + "z" * 2000
    text = cut({"text": f" {long} ", "key": "PLACE", "value": "turin"}, speaker)
    first = long.index("Turin")
    assert text == long[first - 475 : first + 475] and len(speaker.encode(text)) == 950
    assert window(100, 5000) == (0, 950) and window(4900, 5000) == (4425, 5000)
    nowhere = cut({"text": long, "key": "colour", "value": "green"}, speaker)
    assert nowhere == long[-475:]


def test_a_prompt_ends_with_the_key_once():
    assert prompt("Made by Ada.\nplace: Place:", "place") == "Made by Ada.\nplace: . Place:"
    assert prompt("Made by Ada.\n\n", "place") == "Made by Ada. Place:"
    assert prompt("It is...", "type of device") == "It is. Type of device:"


def test_a_task_file_of_one_s_own_is_a_task(speaker, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS["piqa"]))
    file = tmp_path / "my_task.yaml"
    file.write_text(OWN.replace("FILE", str(tmp_path / "some.jsonl")))
    found = ask(Source(48, lambda: speaker), Asked(tasks=[str(file)], length=64))
    assert not found.troubles
    (answer,) = found.answers
    assert set(answer.metrics) == {"eval/mine/acc"} and answer.protocol.version == "7" and answer.protocol.source


def test_what_cannot_be_loaded_is_told_and_the_rest_is_asked(speaker, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = ask(Source(48, lambda: speaker), Asked(tasks=["piqa"]))
    assert "piqa: its dataset baber/piqa could not be loaded" in found.troubles[0]
    assert "HF_HOME" in found.troubles[0] and "FOLDER/piqa.jsonl" in found.troubles[0]
    folder = local(tmp_path / "two", ("arc_easy",))
    (folder / "piqa.jsonl").write_text('{"question": "no goal"}\n')
    kept = []
    asked = Asked(tasks=["hellaswag", "piqa", "arc_easy"], local=folder)
    found = ask(Source(48, lambda: speaker), asked, keep=lambda answer, samples: kept.append((answer, samples)))
    assert "hellaswag: there is no" in found.troubles[0] and "There: arc_easy.jsonl, piqa.jsonl." in found.troubles[0]
    assert "these documents are not of task piqa" in found.troubles[1] and "fields question" in found.troubles[1]
    assert [answer.task for answer, _ in kept] == ["arc_easy"] and len(kept[0][1]) == 1


def test_lines_that_are_no_documents_are_told(speaker, tmp_path):
    for text in ("", "{", "[1]\n"):
        Path(tmp_path / "piqa.jsonl").write_text(text)
        with pytest.raises(StoreError, match=r"piqa\.jsonl"):
            load_tasks("piqa", tmp_path, speaker)
