"""Long-context evaluation: curves beyond the training length, checked with models of known behavior."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from hqlt_lab.data.corpus_reader import open_corpus
from hqlt_lab.evaluation.decoding_cost import (
    TIMED_STEPS,
    count_tensor_bytes,
    measure_decoding_cost,
    prefill_state,
    random_tokens,
    step_times,
)
from hqlt_lab.evaluation.long_context_evaluation import LongContextEval
from hqlt_lab.evaluation.needle_in_haystack import MAX_PAIRS, Haystack, check_answers, needle_accuracy
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.registry import available, build, find_factory
from hqlt_lab.rundir.evaluations import LongContextCurve, read_long_context_curves, write_long_context_curves
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.train.scoring import score_model
from tests.issues import raises_issue
from tests.tasks.small_corpus import prepare_small_corpus

GENERATED_TASKS = [name for name in available("task") if issubclass(find_factory("task", name), GeneratedTask)]
SMALL_MODEL = {"width": 16, "heads": 2, "layers": 1, "mlp_width": 16}


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = prepare_small_corpus(tmp_path_factory.mktemp("texts") / "data", documents=800)
    return build("task", {"name": "language", "data": str(folder), "length": 64, "eval_size": 4})


@pytest.fixture
def model(language):
    return build_model(
        vocabulary=language.vocabulary, timing={"name": "synchronous", "window": 8}, **SMALL_MODEL
    ).eval()


class RepetitionModel(nn.Module):
    """Predicts the token that followed the last occurrence of the same tokens: finds every needle in its context."""

    def __init__(self, vocabulary, context_length):
        super().__init__()
        self.vocabulary, self.context_length, self.weight = vocabulary, context_length, nn.Parameter(torch.zeros(()))

    def forward(self, tokens, state=None, layout=None, labels=None):
        past = tokens if state is None else torch.cat([state, tokens], 1)
        if labels is not None:
            return torch.zeros(tokens.shape), past
        logits = torch.zeros(*tokens.shape, self.vocabulary)
        for row in range(len(tokens)):
            for position in range(tokens.shape[1]):
                end = past.shape[1] - tokens.shape[1] + position + 1
                context = past[row, :end][-self.context_length :].tolist()
                logits[row, position, repeated_continuation(context)] = 1.0
        return logits, past


def repeated_continuation(tokens, min_match=8):
    """Return the token after the latest earlier occurrence of the last `min_match` tokens; 0 without one."""
    for start in range(len(tokens) - min_match - 1, -1, -1):
        if tokens[start : start + min_match] == tokens[-min_match:]:
            return tokens[start + min_match]
    return 0


@pytest.mark.parametrize("name", GENERATED_TASKS)
def test_extrapolation_tests_become_harder_along_each_axis(name):
    task = build("task", {"name": name})
    values_by_axis = {}
    for axis, value, test in task.extrapolation_tests(8):
        values_by_axis.setdefault(axis, []).append(value)
        batch = test.get_examples("test", 0, 0, 3)
        assert (batch.labels >= 0).any(1).all() and batch.tokens.max() < task.vocabulary
    assert values_by_axis
    for values in values_by_axis.values():
        assert values == sorted(set(values)) and len(values) >= 4


def test_gap_inserts_blanks_between_the_pairs_and_the_queries():
    without_gap = build("task", {"name": "associative_recall", "pairs": 4})
    with_gap = replace(without_gap, gap=10, test_length=(74, 74), train_length=(74, 74))
    near, far = without_gap.get_examples("test", 0, 0, 50), with_gap.get_examples("test", 0, 0, 50)
    assert torch.equal(near.tokens[:, :8], far.tokens[:, :8])
    assert (far.tokens[:, 8:18] == 1).all() and torch.equal(near.tokens[:, 8:], far.tokens[:, 18:])
    assert torch.equal(near.labels[:, 8:], far.labels[:, 18:])


def test_loss_by_position_equals_the_loss_of_one_long_row(language, model):
    curve = LongContextEval(model, language, max_factor=4).loss_by_position(language)
    longer = replace(language, length=256, eval_size=16)
    assert language.corpus.num_windows("test", 256) >= 16
    batch = longer.get_examples("test", 0, 0, 16)
    with torch.no_grad():
        losses, _ = model(batch.tokens, labels=batch.labels)
    expected = [losses[:, :64].mean(), losses[:, 64:128].mean(), losses[:, 128:].mean()]
    assert [x for x, _ in curve.points] == [64, 128, 256] and curve.trained == 64
    torch.testing.assert_close(torch.tensor([y for _, y in curve.points]), torch.stack(expected))


def test_loss_by_position_ends_with_the_text(language, model):
    windows = [language.corpus.num_windows("test", 64 * times) for times in (1, 1024)]
    assert windows[0] and not windows[1]
    curve = LongContextEval(model, language, max_factor=1024).loss_by_position(language)
    assert 64 < curve.points[-1][0] <= language.corpus.num_tokens("test")


@pytest.mark.parametrize("distance", [0, 40, 300])
@pytest.mark.parametrize("pairs", [1, 3])
def test_queried_needle_has_the_given_distance(language, distance, pairs):
    corpus = language.corpus
    for tokens in Haystack(corpus, 200, rows=5).make_questions(distance, pairs):
        text, answer = corpus.decode(tokens.context), corpus.decode(tokens.answer)
        question = text.rpartition("\n")[2]
        assert question.startswith("# The number of ") and text.count("# The number of ") == pairs + 1
        needle = f"\n{question}{answer}.\n"
        assert text.count(needle) == 1
        after = text.partition(needle)[2]
        tokens_after = len(corpus.encode(after)) - len(corpus.encode("\n" + question))
        other_needles = re.match(r"(\n# The number of \w+ is \d+\.\n)*", after)[0]
        assert tokens_after == max(distance, len(corpus.encode(other_needles)))


def test_needles_are_found_only_within_the_context_of_the_model(language):
    haystack = Haystack(language.corpus, 100, rows=6)

    def accuracy(context_length, distance):
        return needle_accuracy(RepetitionModel(257, context_length), haystack.make_questions(distance), 4)

    assert accuracy(10_000, 20) == accuracy(10_000, 400) == accuracy(150, 20) == 100.0
    assert accuracy(150, 400) == 0.0


def test_answer_is_correct_only_if_all_its_tokens_are():
    context = torch.tensor([[*range(1, 12), *range(1, 9)]] * 3)
    answers = [[9, 10, 11], [9, 10, 12], [9]]
    assert check_answers(RepetitionModel(20, 100), context, answers).tolist() == [True, False, True]


def test_every_decoded_token_but_the_first_is_timed(model):
    assert len(list(step_times(model, prefill_state(model, random_tokens(model, 8))))) == TIMED_STEPS


def test_prefill_in_chunks_gives_the_same_state(model, monkeypatch):
    tokens = random_tokens(model, 50)
    expected = prefill_state(model, tokens)
    monkeypatch.setattr("hqlt_lab.evaluation.decoding_cost.PREFILL_CHUNK_TOKENS", 7)
    for expected_layer, layer in zip(expected, prefill_state(model, tokens), strict=True):
        torch.testing.assert_close(layer.fw, expected_layer.fw)
        torch.testing.assert_close(layer.kv_cache.k, expected_layer.kv_cache.k)


def test_state_size_is_constant_with_a_window_and_grows_with_full_softmax_attention(language, model):
    timing = {"name": "synchronous", "window": None}
    full_softmax = build_model(vocabulary=language.vocabulary, mixer="kv_only", timing=timing)
    sizes = {}
    for name, measured_model in {"hybrid": model, "softmax": full_softmax.eval()}.items():
        milliseconds, state_bytes = measure_decoding_cost(measured_model, [64, 256])
        assert all(y > 0 for _, y in milliseconds.points)
        sizes[name] = [y for _, y in state_bytes.points]
    expected = count_tensor_bytes(prefill_state(model, random_tokens(model, 64)))
    assert sizes["hybrid"] == [expected, expected]
    assert 3.5 < sizes["softmax"][1] / sizes["softmax"][0] < 4.1


def test_curves_reach_from_the_training_length_to_the_given_multiple(language, model):
    curves = measure_curves(model, language)
    assert [x for x, _ in curves["needle_by_distance"].points] == [16, 32, 64, 128]
    assert [x for x, _ in curves["needle_by_pairs"].points][-1] == MAX_PAIRS
    assert [x for x, _ in curves["state_bytes_by_context"].points] == [64, 128]
    recall = build("task", {"name": "associative_recall", "eval_size": 8})
    recall_model = build_model(vocabulary=recall.vocabulary, **SMALL_MODEL).eval()
    curves = measure_curves(recall_model, recall)
    assert list(curves)[:2] == ["accuracy_by_pairs", "accuracy_by_gap"]
    accuracy = score_model(recall_model, recall, "test", 8).metrics["accuracy"]
    assert curves["accuracy_by_gap"].points[0] == (0, accuracy) and curves["accuracy_by_pairs"].trained == 8


def measure_curves(model, task):
    curves = LongContextEval(model, task, max_factor=2, batch_size=4).measure_curves()
    return {curve.title: curve for curve in curves}


def test_times_below_1_is_an_error(language, model):
    with raises_issue("long", "below_minimum"):
        LongContextEval(model, language, max_factor=0)


def test_writing_curves_replaces_those_with_the_same_title(tmp_path):
    loss = LongContextCurve(name="loss", axis="position", points=[(64, 3.5), (128, 3.0)], trained=64)
    needle = LongContextCurve(name="needle", axis="pairs", points=[(1, 50.0)])
    write_long_context_curves(tmp_path, [loss, needle])
    write_long_context_curves(tmp_path, [replace(loss, points=[(64, 2.5)])])
    curves = {curve.title: curve for curve in read_long_context_curves(tmp_path)}
    assert curves["loss_by_position"].points == [(64, 2.5)] and curves["needle_by_pairs"].points == [(1, 50.0)]
    assert curves["loss_by_position"].time >= curves["needle_by_pairs"].time > 1_700_000_000_000
    assert read_long_context_curves(tmp_path / "nowhere") == []


def test_corpus_reads_any_token_range_and_decodes_encoded_text(language):
    corpus = open_corpus(language.data)
    tokens = corpus.read_tokens("test", 5, 40)
    assert tokens.tolist() == corpus.read_windows("test", 0, 0, 1, 64).tokens[0, 5:45].tolist()
    assert corpus.decode(corpus.encode("memory holds")) == "memory holds"
