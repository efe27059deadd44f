"""Beyond what was trained: curves that say what a model does there, held against models whose answers are known."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from hqlt_lab.data.corpus import open_corpus
from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.long_context import Stretch
from hqlt_lab.evaluation.needle import MOST_PAIRS, Haystack, Row, answered, found_needles
from hqlt_lab.evaluation.token_cost import bytes_of, noise, read, token_cost
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available, build, find
from hqlt_lab.tasks._generated import Generated
from hqlt_lab.train.long_context_file import Curve, curves_in, write_curves
from hqlt_lab.train.score import score
from tests.tasks.texts import prepared

GENERATED = [name for name in available("task") if issubclass(find("task", name), Generated)]
SMALL = {"width": 16, "heads": 2, "layers": 1, "mlp_width": 16}


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = prepared(tmp_path_factory.mktemp("texts") / "data", documents=600)
    return build("task", {"name": "language", "data": str(folder), "length": 64, "eval_size": 4})


@pytest.fixture
def model(language):
    return build_model(vocabulary=language.vocabulary, timing={"name": "synchronous", "window": 8}, **SMALL).eval()


class Parrot(nn.Module):
    """A model that looks up what followed the last time it read the same tokens: it finds every needle it can see."""

    def __init__(self, vocabulary, sight):
        super().__init__()
        self.vocabulary, self.sight, self.weight = vocabulary, sight, nn.Parameter(torch.zeros(()))

    def forward(self, tokens, state=None, layout=None, labels=None):
        past = tokens if state is None else torch.cat([state, tokens], 1)
        if labels is not None:
            return torch.zeros(tokens.shape), past
        logits = torch.zeros(*tokens.shape, self.vocabulary)
        for row in range(len(tokens)):
            for place in range(tokens.shape[1]):
                seen = past[row, : past.shape[1] - tokens.shape[1] + place + 1][-self.sight :].tolist()
                logits[row, place, continuation(seen)] = 1.0
        return logits, past


def continuation(seen, least=8):
    """The token that followed the longest repetition of the end of what was seen; 0 without one of 8 tokens."""
    for start in range(len(seen) - least - 1, -1, -1):
        if seen[start : start + least] == seen[-least:]:
            return seen[start + least]
    return 0


@pytest.mark.parametrize("name", GENERATED)
def test_a_task_gets_harder_from_what_is_learned_on(name):
    task = build("task", {"name": name})
    sides = {}
    for along, value, test in task.harder(8):
        sides.setdefault(along, []).append(value)
        batch = test.examples("test", 0, 0, 3)
        assert (batch.labels >= 0).any(1).all() and batch.tokens.max() < task.vocabulary
    assert sides
    for values in sides.values():
        assert values == sorted(set(values)) and len(values) >= 4


def test_a_gap_is_blanks_between_the_pairs_and_the_questions():
    plain = build("task", {"name": "associative_recall", "pairs": 4})
    gapped = replace(plain, gap=10, test_length=(74, 74), train_length=(74, 74))
    near, far = plain.examples("test", 0, 0, 50), gapped.examples("test", 0, 0, 50)
    assert torch.equal(near.tokens[:, :8], far.tokens[:, :8])
    assert (far.tokens[:, 8:18] == 1).all() and torch.equal(near.tokens[:, 8:], far.tokens[:, 18:])
    assert torch.equal(near.labels[:, 8:], far.labels[:, 18:])


def test_loss_by_place_is_that_of_one_long_row(language, model):
    curve = Stretch(model, language, times=4).loss_by_place(language)
    longer = replace(language, length=256, eval_size=16)
    assert language.corpus.windows_in("test", 256) >= 16
    batch = longer.examples("test", 0, 0, 16)
    with torch.no_grad():
        losses, _ = model(batch.tokens, labels=batch.labels)
    expected = [losses[:, :64].mean(), losses[:, 64:128].mean(), losses[:, 128:].mean()]
    assert [x for x, _ in curve.points] == [64, 128, 256] and curve.trained == 64
    torch.testing.assert_close(torch.tensor([y for _, y in curve.points]), torch.stack(expected))


def test_a_text_that_is_too_short_is_read_as_far_as_it_goes(language, model):
    windows = [language.corpus.windows_in("test", 64 * times) for times in (1, 1024)]
    assert windows[0] and not windows[1]
    curve = Stretch(model, language, times=1024).loss_by_place(language)
    assert 64 < curve.points[-1][0] <= language.corpus.tokens("test")


@pytest.mark.parametrize("distance", [0, 40, 300])
@pytest.mark.parametrize("pairs", [1, 3])
def test_the_needle_that_is_asked_for_lies_so_far_back(language, distance, pairs):
    corpus = language.corpus
    for row in Haystack(corpus, 200, rows=5).hidden(distance, pairs):
        text, answer = corpus.decode(row.context), corpus.decode(row.answer)
        question = text.rpartition("\n")[2]
        assert question.startswith("# The number of ") and text.count("# The number of ") == pairs + 1
        needle = f"\n{question}{answer}.\n"
        assert text.count(needle) == 1
        after = len(corpus.encode(text.partition(needle)[2])) - len(corpus.encode("\n" + question))
        assert after >= distance and (pairs > 1 or after == distance)


def test_needles_are_found_as_far_as_a_model_can_see(language):
    hay = Haystack(language.corpus, 100, rows=6)
    found = lambda sight, distance: found_needles(Parrot(257, sight), hay.hidden(distance), 4)  # noqa: E731
    assert found(10_000, 20) == found(10_000, 400) == found(150, 20) == 100.0
    assert found(150, 400) == 0.0


def test_a_needle_is_found_only_to_its_last_token():
    wrong_end = Row([*range(1, 12), *range(1, 9)], [9, 10, 12])
    right = Row([*range(1, 12), *range(1, 9)], [9, 10, 11])
    parrot, context = Parrot(20, 100), torch.tensor([right.context] * 3)
    assert answered(parrot, context, [right.answer, wrong_end.answer, [9]]).tolist() == [True, False, True]


def test_reading_in_pieces_is_reading_at_once(model, monkeypatch):
    tokens = noise(model, 50)
    whole = read(model, tokens)
    monkeypatch.setattr("hqlt_lab.evaluation.token_cost.PIECE", 7)
    for one, other in zip(whole, read(model, tokens), strict=True):
        torch.testing.assert_close(one.fw, other.fw)
        torch.testing.assert_close(one.ring.k, other.ring.k)


def test_a_window_is_carried_at_constant_size_and_softmax_over_everything_is_not(language, model):
    whole = build_model(vocabulary=language.vocabulary, mixer="kv_only", timing={"name": "synchronous", "window": None})
    sizes = {}
    for name, one in {"hybrid": model, "softmax": whole.eval()}.items():
        milliseconds, carried = token_cost(one, [64, 256])
        assert all(y > 0 for _, y in milliseconds.points)
        sizes[name] = [y for _, y in carried.points]
    assert sizes["hybrid"][0] == sizes["hybrid"][1] == bytes_of(read(model, noise(model, 64)))
    assert 3.5 < sizes["softmax"][1] / sizes["softmax"][0] < 4.1


def test_every_curve_goes_from_training_to_so_many_times_as_far(language, model):
    found = {curve.title: curve for curve in Stretch(model, language, times=2, batch_size=4).curves()}
    assert [x for x, _ in found["needle_by_distance"].points] == [16, 32, 64, 128]
    assert [x for x, _ in found["needle_by_pairs"].points][-1] == MOST_PAIRS
    assert [x for x, _ in found["state_bytes_by_context"].points] == [64, 128]
    recall = build("task", {"name": "associative_recall", "eval_size": 8})
    other = build_model(vocabulary=recall.vocabulary, **SMALL).eval()
    curves = {curve.title: curve for curve in Stretch(other, recall, times=2, batch_size=4).curves()}
    assert list(curves)[:2] == ["accuracy_by_pairs", "accuracy_by_gap"]
    first = score(other, recall, "test", 8).metrics["accuracy"]
    assert curves["accuracy_by_gap"].points[0] == (0, first) and curves["accuracy_by_pairs"].trained == 8


def test_no_times_are_refused(language, model):
    with pytest.raises(ConfigError, match="1 or more, got 0"):
        Stretch(model, language, times=0)


def test_curves_are_kept_and_those_of_one_title_replaced(tmp_path):
    first = Curve(name="loss", along="place", points=[(64, 3.5), (128, 3.0)], trained=64)
    other = Curve(name="needle", along="pairs", points=[(1, 50.0)])
    write_curves(tmp_path, [first, other])
    write_curves(tmp_path, [replace(first, points=[(64, 2.5)])])
    kept = {curve.title: curve for curve in curves_in(tmp_path)}
    assert kept["loss_by_place"].points == [(64, 2.5)] and kept["needle_by_pairs"].points == [(1, 50.0)]
    assert kept["loss_by_place"].time >= kept["needle_by_pairs"].time > 1_700_000_000_000
    assert curves_in(tmp_path / "nowhere") == []


def test_the_corpus_reads_any_piece_and_writes_what_it_reads(language):
    corpus = open_corpus(language.data)
    piece = corpus.piece("test", 5, 40)
    assert piece.tolist() == corpus.windows("test", 0, 0, 1, 64).tokens[0, 5:45].tolist()
    assert corpus.decode(corpus.encode("memory holds")) == "memory holds"
