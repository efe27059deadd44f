"""The lm-eval model gives the results of a plain forward pass over one text at a time."""

import math
import re

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.utils import get_rolling_token_windows

from hqlt_lab.evaluation import loglikelihood
from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
from hqlt_lab.evaluation.loglikelihood import make_scoring_row, score_batch
from tests.generation.text_models import untrained_text_model
from tests.issues import raises_issue

PAIRS = [
    ("the memory", " holds"),
    ("", "what a key has written"),
    ("a key ", "opens"),
    ("x" * 90, " and a long context before it"),
    ("it reads", "é"),
]
TEXTS = ["the memory holds what a key has written and reads it back " * 3, "short", "again and again " * 4]


def make_instances(kind, *arguments):
    return [Instance(kind, {}, args, 0) for args in arguments]


@pytest.fixture(scope="module", params=["delayed_chunk", "synchronous"])
def text_model(request):
    return untrained_text_model(timing={"name": request.param, "window": 8})


def log_probabilities(text_model, tokens):
    with torch.no_grad():
        return text_model.model(torch.tensor([tokens]))[0][0].log_softmax(-1)


def reference_loglikelihood(text_model, context, continuation, length):
    """Compute the log-likelihood of one text from all logits, and whether it is greedy."""
    spaces = len(context) - len(context.rstrip())
    context, continuation = context[: len(context) - spaces], context[len(context) - spaces :] + continuation
    targets = text_model.encode(continuation)
    tokens = [text_model.separator, *text_model.encode(context), *targets][-(length + 1) :]
    log_probs = log_probabilities(text_model, tokens[:-1])[-len(targets) :]
    is_greedy = log_probs.argmax(-1).tolist() == targets
    return sum(float(row[token]) for row, token in zip(log_probs, targets, strict=True)), is_greedy


@pytest.mark.parametrize("size", [1, 3, 16])
def test_loglikelihoods_do_not_depend_on_the_batch_size(text_model, size):
    model = LmEvalModel(text_model, length=64, batch_size=size)
    results = model.loglikelihood(make_instances("loglikelihood", *PAIRS))
    for (value, greedy), pair in zip(results, PAIRS, strict=True):
        expected_value, expected_greedy = reference_loglikelihood(text_model, *pair, 64)
        assert value == pytest.approx(expected_value, abs=1e-9) and greedy == expected_greedy
    assert model.num_truncated == 1


def test_continuation_is_greedy_if_the_model_would_generate_it(text_model):
    tokens = [text_model.separator, *text_model.encode("the key")]
    greedy = []
    while len(greedy) < 4:
        greedy.append(int(log_probabilities(text_model, [*tokens, *greedy])[-1].argmax()))
    not_greedy = [*greedy[:-1], (greedy[-1] + 1) % 256]
    rows = [make_scoring_row(tokens, greedy, 64), make_scoring_row(tokens, not_greedy, 64)]
    assert [score.is_greedy for score in score_batch(text_model.model, rows, text_model.device)] == [True, False]


def test_loglikelihoods_do_not_depend_on_the_number_of_logits_at_a_time(text_model, monkeypatch):
    expected = LmEvalModel(text_model, 64, 4).loglikelihood(make_instances("loglikelihood", *PAIRS))
    monkeypatch.setattr(loglikelihood, "MAX_LOGITS", 1000)
    results = LmEvalModel(text_model, 64, 4).loglikelihood(make_instances("loglikelihood", *PAIRS))
    assert [value for value, _ in results] == pytest.approx([value for value, _ in expected], abs=1e-9)


@pytest.mark.parametrize("size", [1, 4])
def test_rolling_windows_predict_each_token_once(text_model, size):
    requests = make_instances("loglikelihood_rolling", *((text,) for text in TEXTS))
    values = LmEvalModel(text_model, 32, size).loglikelihood_rolling(requests)
    for value, text in zip(values, TEXTS, strict=True):
        tokens, total, predicted = text_model.encode(text), 0.0, 0
        for window, targets in get_rolling_token_windows(tokens, text_model.separator, 32, 1):
            log_probs = log_probabilities(text_model, window)[-len(targets) :]
            total += float(log_probs.gather(1, torch.tensor(targets)[:, None]).sum())
            predicted += len(targets)
        assert predicted == len(tokens) and value == pytest.approx(total, abs=1e-9)
        assert math.isfinite(value)


@pytest.mark.parametrize("size", [1, 5])
def test_completions_are_greedy_stop_correctly_and_use_the_end_of_a_long_context(text_model, size):
    contexts = ["the memory", "", "x" * 100, "a key has"]
    options = {"until": ["e", "\n"], "max_gen_toks": 12}
    model = LmEvalModel(text_model, 48, size)
    texts = model.generate_until(make_instances("generate_until", *((context, options) for context in contexts)))
    for text, context in zip(texts, contexts, strict=True):
        tokens = [text_model.separator, *text_model.encode(context)][-36:]
        expected = greedy_tokens(text_model, tokens, 12)
        assert text == re.split("[e\n]", text_model.decode(expected))[0]
    assert model.num_truncated == 1


def greedy_tokens(text_model, tokens, count):
    generated = []
    while len(generated) < count:
        token = int(log_probabilities(text_model, [*tokens, *generated])[-1, : text_model.vocabulary].argmax())
        if token == text_model.separator:
            break
        generated.append(token)
    return generated


def test_text_longer_than_the_context_is_an_error(text_model):
    model = LmEvalModel(text_model, 8)
    with raises_issue("length", "continuation_too_long"):
        model.loglikelihood(make_instances("loglikelihood", ("a", "b" * 20)))
    with raises_issue("length", "no_room_for_prompt"):
        model.generate_until(make_instances("generate_until", ("a", {"until": ["\n"], "max_gen_toks": 48})))
