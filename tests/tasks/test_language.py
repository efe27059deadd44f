"""The language task: rows, document boundaries, metrics, and identification of the data."""

import json
import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.data.prepare import prepare_data
from hqlt_lab.data.prepare_options import PrepareRequest
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.train.fit import fit
from hqlt_lab.train.scoring import outputs_and_losses
from tests.issues import raises_issue
from tests.tasks.small_corpus import prepare_small_corpus

EXPERIMENT = """
question: What is next?
task: {name: language, data: DATA, length: 48, eval_size: 4}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 8}}
train: {steps: 6, batch_size: 4, valid_every: 3, checkpoint_every: 2}
trainer: {accelerator: cpu}
arms: {cross: {}, reset: {task.documents: reset}}
seeds: 1
measure: {select: valid/loss, report: [test/bits_per_byte, test/perplexity], direction: minimize}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_small_corpus(tmp_path_factory.mktemp("data") / "words")


def make_task(data, **options):
    return lab.build("task", {"name": "language", "data": str(data), "length": 48, "eval_size": 4} | options)


def test_labels_are_the_next_tokens(data):
    batch = make_task(data).get_examples("train", 0, 0, 8)
    assert batch.tokens.shape == batch.labels.shape == (8, 48) and (batch.lengths == 48).all()
    assert torch.equal(batch.tokens[:, 1:], batch.labels[:, :-1])


def test_rows_depend_only_on_seed_and_number(data):
    task = make_task(data)
    together = task.get_examples("train", 3, 5, 6).tokens
    separate = torch.cat([task.get_examples("train", 3, first, count).tokens for first, count in ((5, 2), (7, 4))])
    assert torch.equal(together, separate) and not torch.equal(together, task.get_examples("train", 4, 5, 6).tokens)
    assert torch.equal(task.get_examples("test", 3, 0, 4).tokens, task.get_examples("test", 4, 0, 4).tokens)


def test_epoch_contains_every_row_once(data):
    corpus, task = open_corpus(data), make_task(data)
    count = corpus.num_windows("train", 48)
    epochs = [task.get_examples("train", 0, epoch * count, count).tokens.tolist() for epoch in range(2)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
    assert len({tuple(row) for row in epochs[0]}) == count


def test_document_starts_with_reset_are_the_separators(data):
    batch = make_task(data).get_examples("train", 0, 0, 64)
    assert make_task(data).document_starts(batch.tokens) is None
    starts = make_task(data, documents="reset").document_starts(batch.tokens)
    assert starts.any() and (batch.tokens[starts] == open_corpus(data).index.separator).all()


def test_with_reset_a_document_is_processed_independently(data):
    task = make_task(data, documents="reset")
    model = lab.build_model(vocabulary=task.vocabulary, width=16, heads=2, layers=2, mlp_width=16).double().eval()
    batch = task.get_examples("train", 0, 0, 64)
    starts = task.document_starts(batch.tokens)
    row, start = next((row, start) for row, start in starts.nonzero().tolist() if 4 < start < 40)
    together, _ = outputs_and_losses(model, task, batch.tokens[row : row + 1], batch.labels[row : row + 1])
    end = next((position for position in range(start + 1, 48) if starts[row, position]), 48)
    alone, _ = model(batch.tokens[row : row + 1, start:end], labels=batch.labels[row : row + 1, start:end])
    torch.testing.assert_close(together[:, start:end], alone)


def test_bits_per_byte_and_loss_by_position_are_computed_from_the_losses(data):
    task = make_task(data, length=200, eval_size=2)
    batch = task.get_examples("test", 0, 0, 2)
    losses = torch.rand(2, 200)
    totals = {name: count.double().sum().item() for name, count in task.score_examples(losses, batch).items()}
    metrics = task.compute_metrics(totals)
    mean = losses.double().mean().item()
    num_bytes = (batch.labels < 256).sum().item()  # 256 is the separator
    assert metrics["bits_per_byte"] == pytest.approx(losses.double().sum().item() / math.log(2) / num_bytes)
    assert metrics["perplexity"] == pytest.approx(math.exp(mean))
    assert metrics["loss/position_64_127"] == pytest.approx(losses[:, 64:128].double().mean().item())
    assert set(metrics) == set(task.metric_names) and task.position_buckets == [(0, 63), (64, 127), (128, 199)]


def test_bits_per_byte_use_the_text_of_the_rows_scored(tmp_path):
    """Documents of long tokens come first, so that a pooled ratio would be wrong for a few rows."""
    text = [{"text": " ".join(["memory"] * 60)}] * 200 + [
        {"text": " ".join(f"{n * 7919 % 1000003}" for n in range(99))}
    ]
    texts = [f"{number} {row['text']} {number}" for number, row in enumerate(text * 2)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    request = PrepareRequest(source=str(tmp_path / "texts.jsonl"), tokenizer="bpe", vocabulary=300, valid=0.3, test=0.3)
    prepare_data(request, tmp_path / "bpe", workers=1)
    task, corpus = make_task(tmp_path / "bpe", length=64), open_corpus(tmp_path / "bpe")
    for split in ("valid", "test"):
        batch = task.get_examples(split, 0, 0, 4)
        totals = {
            name: count.double().sum().item() for name, count in task.score_examples(torch.ones(4, 64), batch).items()
        }
        scored_text = "".join(corpus.read_texts(split, 4 * 64 + 1))
        assert totals["bytes"] == pytest.approx(len(scored_text.encode()), abs=1)
        assert task.compute_metrics(totals)["bits_per_byte"] == pytest.approx(4 * 64 / math.log(2) / totals["bytes"])


def test_experiment_records_the_data_digest_and_other_data_give_another_key(data, tmp_path):
    (tmp_path / "file.yaml").write_text(EXPERIMENT.replace("DATA", str(data)))
    cells = expand_plan(load_experiment(tmp_path / "file.yaml"))
    assert all(planned.cell.task["digest"] == open_corpus(data).digest for planned in cells)
    other = prepare_small_corpus(tmp_path / "other", documents=50)
    assert expand_plan(load_experiment(tmp_path / "file.yaml", [f"task.data={other}"]))[0].key != cells[0].key
    with raises_issue("data", "data_changed"):
        make_task(data, digest="0").check_ready()


def test_error_for_missing_data_names_the_command(tmp_path):
    with raises_issue("data", "data_cannot_be_read"):
        make_task(tmp_path / "nowhere").check_ready()
    assert make_task(tmp_path / "nowhere", vocabulary_size=300).vocabulary == 300


def test_too_few_held_out_rows_and_too_small_a_vocabulary_are_errors(data):
    with raises_issue("eval_size", "too_few_rows"):
        make_task(data, eval_size=100_000).check_ready()
    with raises_issue("vocabulary_size", "vocabulary_too_small"):
        make_task(data, vocabulary_size=100).check_ready()
    with raises_issue("task.length", "below_minimum"):
        make_task(data, length=1)


def test_language_model_from_a_file_is_trained_scored_and_not_trained_twice(data, tmp_path):
    (tmp_path / "file.yaml").write_text(EXPERIMENT.replace("DATA", str(data)))
    for planned in expand_plan(load_experiment(tmp_path / "file.yaml")):
        outcome = fit(planned.cell, tmp_path / planned.key)
        assert outcome.status == "done" and 0 < outcome.metrics["test/bits_per_byte"] < 9
        assert outcome.metrics["test/perplexity"] == pytest.approx(math.exp(outcome.metrics["test/loss"]))
        assert "valid/loss/position_0_47" in outcome.metrics and "valid/short_loss" not in outcome.metrics
        assert outcome.errors["test/bits_per_byte"] > 0
        assert fit(planned.cell, tmp_path / planned.key) == outcome
