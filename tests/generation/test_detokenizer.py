"""Incremental detokenizer: complete characters, no stop strings, and in total the text of all tokens."""

import itertools
import random

import pytest

from hqlt_lab.data.tokenizers.load_tokenizer import create_tokenizer
from hqlt_lab.generation.detokenizer import REPLACEMENT_CHARACTER, IncrementalDetokenizer
from hqlt_lab.generation.text_model import TextModel

TEXTS = ["The key 🗝️ opens — né? 漢字!", " leading", "two  spaces\n\n\tand a tab ", "🙂🙂", "naïve"]


def make_text_model(name):
    tokenizer = create_tokenizer(name, 300, [text.encode() for text in TEXTS] * 3)
    return TextModel(
        model=None, tokenizer=tokenizer, separator=tokenizer.separator, vocabulary=tokenizer.vocabulary,
        trained_length=8, name=name, device=None,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["bytes", "bpe", "mistral"])
def model(request):
    return make_text_model(request.param)


def stream_tokens(model, prompt, tokens, stop_strings=()):
    """Return the chunks of text that are emitted, up to a stop string."""
    detokenizer, chunks = IncrementalDetokenizer(model, prompt, stop_strings), []
    for token in tokens:
        chunks.append(detokenizer.append_token(token))
        if detokenizer.has_stopped:
            break
    chunks.append(detokenizer.flush_text())
    assert "".join(chunks) == detokenizer.text
    return chunks


@pytest.mark.parametrize("text", TEXTS)
def test_chunks_are_complete_characters_and_add_up_to_the_text(model, text):
    tokens = model.encode(text)
    for prompt_length in range(len(tokens) + 1):
        chunks = stream_tokens(model, tokens[:prompt_length], tokens[prompt_length:])
        assert not any(REPLACEMENT_CHARACTER in chunk for chunk in chunks)
        prompt_text = model.decode(tokens[:prompt_length]).rstrip(REPLACEMENT_CHARACTER)
        assert prompt_text + "".join(chunks) == model.decode(tokens)


def test_prompt_and_generated_text_join_without_a_seam(model):
    for first, second in itertools.permutations(TEXTS, 2):
        prompt = model.encode(first)
        tokens = model.encode(first + second)
        if tokens[: len(prompt)] == prompt:
            generated_text = "".join(stream_tokens(model, prompt, tokens[len(prompt) :]))
            assert model.decode(prompt) + generated_text == first + second


def test_text_is_emitted_as_soon_as_its_character_is_complete():
    model = make_text_model("bytes")
    assert stream_tokens(model, [], [*b"a\xe2\x82\xacb"]) == ["a", "", "", "€", "b", ""]
    invalid = [REPLACEMENT_CHARACTER, REPLACEMENT_CHARACTER]
    assert stream_tokens(model, [], [*b"\xff\xff\xff\xff\xff"])[:5] == ["", "", "", *invalid]
    assert stream_tokens(model, [], [*b"ab\xe2"])[-1] == REPLACEMENT_CHARACTER


def test_chunks_of_arbitrary_bytes_add_up_to_the_decoded_text():
    model, rng = make_text_model("bytes"), random.Random(0)
    for _ in range(50):
        tokens = [rng.choice(b"\x41\xe2\x82\xac\xf0\x9f\x97\x9d\xff\xc3") for _ in range(30)]
        assert "".join(stream_tokens(model, [], tokens)) == model.decode(tokens)


@pytest.mark.parametrize("stop", [("opens",), ("🗝️",), ("zzz", "né"), ("ey 🗝️ op", "y 🗝"), (" — né? 漢",)])
def test_text_ends_before_the_stop_string_that_is_complete_first(model, stop):
    tokens = model.encode(TEXTS[0])
    chunks = stream_tokens(model, [], tokens, stop)
    start_by_end = {TEXTS[0].find(text) + len(text): TEXTS[0].find(text) for text in stop if text in TEXTS[0]}
    expected = TEXTS[0][: start_by_end[min(start_by_end)]]
    assert "".join(chunks) == expected
    for length in range(len(chunks)):
        assert expected.startswith("".join(chunks[:length]))  # no part of the stop string was ever emitted


def test_incomplete_stop_string_is_emitted_at_the_end():
    model = make_text_model("bytes")
    assert stream_tokens(model, [], [*b"say stop"], ("stopped",)) == ["", "sa", "y", " ", "", "", "", "", "stop"]
    assert stream_tokens(model, [], [*b"aab"], ("ab",)) == ["", "a", "", ""]
    assert stream_tokens(model, [], [*b"aaxab"], ("ab",))[:3] == ["", "a", "ax"]
