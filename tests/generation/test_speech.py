"""Text as it comes: whole characters, no stop strings, and in the end what all tokens together say."""

import itertools
import random

import pytest

from hqlt_lab.data.encoders.choose import make_encoder
from hqlt_lab.generation.speech import BROKEN, Speech
from hqlt_lab.generation.text_model import TextModel

TEXTS = ["The key 🗝️ opens — né? 漢字!", " leading", "two  spaces\n\n\tand a tab ", "🙂🙂", "naïve"]


def speaker(name):
    encoder = make_encoder(name, 300, [text.encode() for text in TEXTS] * 3)
    return TextModel(
        model=None, encoder=encoder, separator=encoder.separator, vocabulary=encoder.vocabulary,
        trained_length=8, name=name, device=None,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["bytes", "bpe", "mistral"])
def model(request):
    return speaker(request.param)


def spoken(model, prompt, tokens, stop=()):
    """The pieces that come, until a stop string does."""
    speech, came = Speech(model, prompt, stop), []
    for token in tokens:
        came.append(speech.add(token))
        if speech.stopped:
            break
    came.append(speech.end())
    assert "".join(came) == speech.text
    return came


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_together_the_text(model, text):
    tokens = model.encode(text)
    for cut in range(len(tokens) + 1):
        came = spoken(model, tokens[:cut], tokens[cut:])
        assert not any(BROKEN in piece for piece in came)
        before = model.decode(tokens[:cut]).rstrip(BROKEN)
        assert before + "".join(came) == model.decode(tokens)


def test_a_prompt_and_what_follows_it_make_one_text(model):
    for first, second in itertools.permutations(TEXTS, 2):
        prompt = model.encode(first)
        together = model.encode(first + second)
        if together[: len(prompt)] == prompt:
            assert model.decode(prompt) + "".join(spoken(model, prompt, together[len(prompt) :])) == first + second


def test_text_is_not_held_back_longer_than_a_character_takes():
    model = speaker("bytes")
    assert spoken(model, [], [*b"a\xe2\x82\xacb"]) == ["a", "", "", "€", "b", ""]
    assert spoken(model, [], [*b"\xff\xff\xff\xff\xff"])[:5] == ["", "", "", BROKEN, BROKEN]
    assert spoken(model, [], [*b"ab\xe2"])[-1] == BROKEN


def test_any_bytes_at_all_come_out_as_they_are_decoded():
    model, draw = speaker("bytes"), random.Random(0)
    for _ in range(50):
        tokens = [draw.choice(b"\x41\xe2\x82\xac\xf0\x9f\x97\x9d\xff\xc3") for _ in range(30)]
        assert "".join(spoken(model, [], tokens)) == model.decode(tokens)


@pytest.mark.parametrize("stop", [("opens",), ("🗝️",), ("zzz", "né"), ("ey 🗝️ op", "y 🗝"), (" — né? 漢",)])
def test_a_text_ends_before_the_stop_string_that_is_complete_first(model, stop):
    tokens = model.encode(TEXTS[0])
    came = spoken(model, [], tokens, stop)
    ends = {TEXTS[0].find(one) + len(one): TEXTS[0].find(one) for one in stop if one in TEXTS[0]}
    expected = TEXTS[0][: ends[min(ends)]]
    assert "".join(came) == expected
    for length in range(len(came)):
        assert expected.startswith("".join(came[:length]))  # nothing of the stop string was ever shown


def test_what_only_began_like_a_stop_string_is_shown_in_the_end():
    model = speaker("bytes")
    assert spoken(model, [], [*b"say stop"], ("stopped",)) == ["", "sa", "y", " ", "", "", "", "", "stop"]
    assert spoken(model, [], [*b"aab"], ("ab",)) == ["", "a", "", ""]
    assert spoken(model, [], [*b"aaxab"], ("ab",))[:3] == ["", "a", "ax"]
