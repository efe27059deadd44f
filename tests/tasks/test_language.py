"""A prepared text as a task: rows, borders, scores, and which data are meant."""

import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.train.fit import fit
from hqlt_lab.train.score import answers
from tests.tasks.texts import prepared

FILE = """
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
    return prepared(tmp_path_factory.mktemp("data") / "words")


def task(data, **options):
    return lab.build("task", {"name": "language", "data": str(data), "length": 48, "eval_size": 4} | options)


def test_every_token_is_due_at_the_one_before_it(data):
    batch = task(data).examples("train", 0, 0, 8)
    assert batch.tokens.shape == batch.labels.shape == (8, 48) and (batch.lengths == 48).all()
    assert torch.equal(batch.tokens[:, 1:], batch.labels[:, :-1])


def test_rows_depend_on_seed_and_number_alone(data):
    one = task(data)
    whole = one.examples("train", 3, 5, 6).tokens
    parts = torch.cat([one.examples("train", 3, first, count).tokens for first, count in ((5, 2), (7, 4))])
    assert torch.equal(whole, parts) and not torch.equal(whole, one.examples("train", 4, 5, 6).tokens)
    assert torch.equal(one.examples("test", 3, 0, 4).tokens, one.examples("test", 4, 0, 4).tokens)


def test_an_epoch_has_every_row_once(data):
    corpus, one = open_corpus(data), task(data)
    count = corpus.windows_in("train", 48)
    epochs = [one.examples("train", 0, epoch * count, count).tokens.tolist() for epoch in range(2)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
    assert len({tuple(row) for row in epochs[0]}) == count


def test_documents_that_are_reset_begin_where_the_separator_is(data):
    batch = task(data).examples("train", 0, 0, 64)
    assert task(data).starts(batch.tokens) is None
    starts = task(data, documents="reset").starts(batch.tokens)
    assert starts.any() and (batch.tokens[starts] == open_corpus(data).index.separator).all()


def test_with_reset_a_document_is_read_as_if_it_were_alone(data):
    one = task(data, documents="reset")
    model = lab.build_model(vocabulary=one.vocabulary, width=16, heads=2, layers=2, mlp_width=16).double().eval()
    batch = one.examples("train", 0, 0, 64)
    starts = one.starts(batch.tokens)
    row, place = next((row, place) for row, place in starts.nonzero().tolist() if 4 < place < 40)
    together, _ = answers(model, one, batch.tokens[row : row + 1], batch.labels[row : row + 1])
    end = next((other for other in range(place + 1, 48) if starts[row, other]), 48)
    alone, _ = model(batch.tokens[row : row + 1, place:end], labels=batch.labels[row : row + 1, place:end])
    torch.testing.assert_close(together[:, place:end], alone)


def test_bits_per_byte_and_the_loss_by_place_follow_from_the_losses(data):
    one = task(data, length=200, eval_size=2)
    corpus, batch = open_corpus(data), one.examples("test", 0, 0, 2)
    losses = torch.rand(2, 200)
    totals = {name: count.double().sum().item() for name, count in one.score(losses, batch).items()}
    found = one.metrics(totals)
    mean = losses.double().mean().item()
    held = [sum(count(split) for split in ("valid", "test")) for count in (corpus.tokens, corpus.bytes)]
    assert found["bits_per_byte"] == pytest.approx(mean / math.log(2) * held[0] / held[1])
    assert found["perplexity"] == pytest.approx(math.exp(mean))
    assert found["loss/place_64_127"] == pytest.approx(losses[:, 64:128].double().mean().item())
    assert set(found) == set(one.measures) and one.places == [(0, 63), (64, 127), (128, 199)]


def test_a_file_pins_its_data_and_other_data_are_another_cell(data, tmp_path):
    (tmp_path / "file.yaml").write_text(FILE.replace("DATA", str(data)))
    cells = plan(load(tmp_path / "file.yaml"))
    assert all(one.cell.task["digest"] == open_corpus(data).digest for one in cells)
    other = prepared(tmp_path / "other", documents=50)
    assert plan(load(tmp_path / "file.yaml", [f"task.data={other}"]))[0].key != cells[0].key
    with pytest.raises(ConfigError, match="holds other data"):
        task(data, digest="0").check_ready()


def test_what_is_missing_is_told_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(ConfigError, match="hqlt data prepare"):
        task(tmp_path / "nowhere").check_ready()
    assert task(tmp_path / "nowhere", vocabulary_size=300).vocabulary == 300


def test_too_few_held_out_rows_and_too_small_a_vocabulary_are_told(data):
    with pytest.raises(ConfigError, match=r"eval_size: valid of .* rows of 48 tokens, and 100000 are asked for"):
        task(data, eval_size=100_000).check_ready()
    with pytest.raises(ConfigError, match=r"vocabulary_size: .* has 257 different tokens, got 100"):
        task(data, vocabulary_size=100).check_ready()
    with pytest.raises(ConfigError, match="length: at least 2"):
        task(data, length=1)


def test_a_language_model_is_trained_scored_and_resumed_from_a_file(data, tmp_path):
    (tmp_path / "file.yaml").write_text(FILE.replace("DATA", str(data)))
    for one in plan(load(tmp_path / "file.yaml")):
        outcome = fit(one.cell, tmp_path / one.key)
        assert outcome.status == "done" and 0 < outcome.metrics["test/bits_per_byte"] < 9
        assert outcome.metrics["test/perplexity"] == pytest.approx(math.exp(outcome.metrics["test/loss"]))
        assert "valid/loss/place_0_47" in outcome.metrics and "valid/short_loss" not in outcome.metrics
        assert outcome.errors["test/bits_per_byte"] > 0
        assert fit(one.cell, tmp_path / one.key) == outcome
