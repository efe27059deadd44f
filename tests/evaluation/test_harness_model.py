"""Our model under lm-eval answers what a plain pass over one text at a time says."""

import importlib
import math
import re

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.utils import get_rolling_token_windows

from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.harness_model import HarnessModel
from hqlt_lab.evaluation.score import row_of, score
from tests.generation.speakers import untrained

PAIRS = [
    ("the memory", " holds"),
    ("", "what a key has written"),
    ("a key ", "opens"),
    ("x" * 90, " and a long context before it"),
    ("it reads", "é"),
]
TEXTS = ["the memory holds what a key has written and reads it back " * 3, "short", "again and again " * 4]


def asked(kind, *arguments):
    return [Instance(kind, {}, given, 0) for given in arguments]


@pytest.fixture(scope="module", params=["delayed_chunk", "synchronous"])
def speaker(request):
    return untrained(timing={"name": request.param, "window": 8})


def logits(speaker, tokens):
    with torch.no_grad():
        return speaker.model(torch.tensor([tokens]))[0][0].log_softmax(-1)


def plain(speaker, context, continuation, length):
    """One text at a time, all logits."""
    spaces = len(context) - len(context.rstrip())
    context, continuation = context[: len(context) - spaces], context[len(context) - spaces :] + continuation
    due = speaker.encode(continuation)
    tokens = [speaker.separator, *speaker.encode(context), *due][-(length + 1) :]
    found = logits(speaker, tokens[:-1])[-len(due) :]
    best = found.argmax(-1).tolist() == due
    return sum(float(row[token]) for row, token in zip(found, due, strict=True)), best


@pytest.mark.parametrize("size", [1, 3, 16])
def test_any_batch_size_says_what_one_text_at_a_time_says(speaker, size):
    model = HarnessModel(speaker, length=64, batch_size=size)
    for found, pair in zip(model.loglikelihood(asked("loglikelihood", *PAIRS)), PAIRS, strict=True):
        value, greedy = plain(speaker, *pair, 64)
        assert found[0] == pytest.approx(value, abs=1e-9) and found[1] == greedy
    assert model.truncated == 1


def test_a_continuation_is_greedy_if_the_model_would_have_said_it(speaker):
    tokens = [speaker.separator, *speaker.encode("the key")]
    said = []
    while len(said) < 4:
        said.append(int(logits(speaker, [*tokens, *said])[-1].argmax()))
    rows = [row_of(tokens, said, 64), row_of(tokens, [*said[:-1], (said[-1] + 1) % 256], 64)]
    assert [found.greedy for found in score(speaker.model, rows, speaker.device)] == [True, False]


def test_few_logits_at_a_time_are_the_same_logits(speaker, monkeypatch):
    whole = HarnessModel(speaker, 64, 4).loglikelihood(asked("loglikelihood", *PAIRS))
    monkeypatch.setattr(importlib.import_module("hqlt_lab.evaluation.score"), "LOGITS", 1000)
    some = HarnessModel(speaker, 64, 4).loglikelihood(asked("loglikelihood", *PAIRS))
    assert [value for value, _ in some] == pytest.approx([value for value, _ in whole], abs=1e-9)


@pytest.mark.parametrize("size", [1, 4])
def test_a_whole_text_is_read_in_windows_that_predict_each_token_once(speaker, size):
    found = HarnessModel(speaker, 32, size).loglikelihood_rolling(
        asked("loglikelihood_rolling", *((t,) for t in TEXTS))
    )
    for value, text in zip(found, TEXTS, strict=True):
        tokens, total, predicted = speaker.encode(text), 0.0, 0
        for read, due in get_rolling_token_windows(tokens, speaker.separator, 32, 1):
            total += float(logits(speaker, read)[-len(due) :].gather(1, torch.tensor(due)[:, None]).sum())
            predicted += len(due)
        assert predicted == len(tokens) and value == pytest.approx(total, abs=1e-9)
        assert math.isfinite(value)


@pytest.mark.parametrize("size", [1, 5])
def test_completions_are_greedy_end_where_they_should_and_see_the_end_of_a_long_context(speaker, size):
    contexts = ["the memory", "", "x" * 100, "a key has"]
    wish = {"until": ["e", "\n"], "max_gen_toks": 12}
    model = HarnessModel(speaker, 48, size)
    found = model.generate_until(asked("generate_until", *((context, wish) for context in contexts)))
    for text, context in zip(found, contexts, strict=True):
        tokens = [speaker.separator, *speaker.encode(context)][-36:]
        said = greedy(speaker, tokens, 12)
        assert text == re.split("[e\n]", speaker.decode(said))[0]
    assert model.truncated == 1


def greedy(speaker, tokens, count):
    said = []
    while len(said) < count:
        token = int(logits(speaker, [*tokens, *said])[-1, : speaker.vocabulary].argmax())
        if token == speaker.separator:
            break
        said.append(token)
    return said


def test_what_does_not_fit_is_told_in_a_sentence(speaker):
    model = HarnessModel(speaker, 8)
    with pytest.raises(ConfigError, match=r"a continuation of 20 tokens does not fit 8"):
        model.loglikelihood(asked("loglikelihood", ("a", "b" * 20)))
    with pytest.raises(ConfigError, match=r"8 tokens leave no room for a prompt beside the 48 of its completion"):
        model.generate_until(asked("generate_until", ("a", {"until": ["\n"], "max_gen_toks": 48})))
