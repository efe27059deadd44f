"""Streaming generation says what a model says that reads everything anew for every token."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.generation.decoding import Decoding
from hqlt_lab.generation.generate import generate, pieces
from hqlt_lab.generation.prompts import read, tokens_of
from hqlt_lab.generation.recomputed import recomputed
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.text_model import text_model_in
from tests.generation.speakers import untrained

PROMPTS = ["", "the key", "a memory that holds what was written", "né"]
GREEDY = Sampling(tokens=10, temperature=0)
SAMPLED = Sampling(tokens=10, temperature=1.3, top_k=40, top_p=0.95, seed=3)
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    *({"timing": {"name": name, "window": 4}, "short_conv": 3} for name in lab.available("timing")),
    {"timing": {"name": "delayed_stream", "window": 4}, "update_rule": "delta_product", "mixer": "separate"},
    {"timing": {"name": "delayed_chunk", "window": 4}, "update_rule": "linear_attention", "mixer": "sum"},
    {"update_rule": "gated_delta", "mixer": "fw_only"},
    {"timing": {"name": "synchronous", "window": None}, "mixer": "kv_only", "positions": "sinusoidal"},
]


def told(settings):
    parts = (part["name"] if isinstance(part, dict) else str(part) for part in settings.values())
    return "-".join(parts)


def followed(model, options, piece=2048):
    """The tokens of each row, and the logits that each was chosen by."""
    decoding = Decoding(model, tokens_of(model, PROMPTS), options, piece=piece)
    rows, logits = list(decoding.rows), {row.number: [] for row in decoding.rows}
    while decoding.rows:
        for row, seen in zip(decoding.rows, decoding.logits, strict=True):
            logits[row.number].append(seen)
        decoding.step()
    return [row.speech.generated for row in rows], [torch.stack(seen) for seen in logits.values()]


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("settings", COMPOSITIONS, ids=told)
def test_streaming_is_what_the_whole_text_says_at_every_step(settings, options):
    model = untrained(**settings)
    tokens, logits = followed(model, options)
    for row, prompt in enumerate(PROMPTS):
        expected, seen = recomputed(model, prompt, options, row)
        assert tokens[row] == expected
        torch.testing.assert_close(logits[row], seen)


@pytest.mark.parametrize("settings", COMPOSITIONS, ids=told)
def test_a_prompt_may_be_read_in_pieces_of_any_size(settings):
    model = untrained(**settings)
    rows = tokens_of(model, PROMPTS)
    expected, state = read(model, rows)
    for piece in (1, 7):
        logits, again = read(model, rows, piece)
        torch.testing.assert_close(logits, expected)
        torch.testing.assert_close(again[0].count, state[0].count)
    assert followed(model, SAMPLED, piece=5)[0] == followed(model, SAMPLED)[0]


def test_a_row_says_the_same_alone_and_in_any_batch():
    model = untrained(timing={"name": "delayed_chunk", "window": 4})
    together = generate(model, PROMPTS, SAMPLED)
    by_two = generate(model, PROMPTS, SAMPLED, rows=2)
    assert [one.tokens for one in together] == [one.tokens for one in by_two]
    for row, prompt in enumerate(tokens_of(model, PROMPTS)):
        alone = Decoding(model, [prompt], SAMPLED, first=row)
        (kept,) = alone.rows
        while alone.rows:
            alone.step()
        assert kept.speech.generated == together[row].tokens
    assert len({tuple(one.tokens) for one in generate(model, ["a"] * 4, SAMPLED)}) == 4
    assert generate(model, ["a"], SAMPLED)[0].tokens != generate(model, ["a"], Sampling(seed=4, tokens=10))[0].tokens


def test_a_prompt_begins_with_the_separator_as_documents_do():
    model = untrained()
    assert tokens_of(model, ["", "Hi"]) == [[256], [256, 72, 105]]
    assert tokens_of(model, [[72, 105], [256, 72]]) == [[256, 72, 105], [256, 72]]
    same = [generate(model, [prompt], GREEDY)[0].tokens for prompt in ("Hi", [72, 105], [256, 72, 105])]
    assert same[0] == same[1] == same[2]


def test_rows_that_have_ended_leave_the_batch_and_say_why():
    model = untrained(seed=1)
    options = Sampling(tokens=150, temperature=1.0, stop=("e",))
    decoding = Decoding(model, tokens_of(model, ["a"] * 12), options)
    sizes = []
    while decoding.rows:
        sizes.append(len(decoding.rows))
        assert len(decoding.logits) == len(decoding.state[0].count) == len(decoding.rows)
        decoding.step()
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 12 and sizes[-1] < 12
    found = generate(model, ["a"] * 12, options)
    assert {one.reason for one in found} == {"stop", "end of document", "length"}
    for one in found:
        assert (
            (len(one.tokens) == 150) == (one.reason == "length")
            and model.separator not in one.tokens
            and "e" not in one.text
        )
        assert (model.decode(one.tokens[-1:]) == "e") == (one.reason == "stop")
    assert all(one.reason == "length" and len(one.tokens) == 3 for one in generate(model, ["a"], Sampling(tokens=3)))


def test_pieces_put_together_are_the_text_and_told_hears_the_same():
    model, heard = untrained(), []
    found = generate(model, PROMPTS, SAMPLED, told=heard.append)
    assert heard == list(pieces(model, PROMPTS, SAMPLED))
    for row, one in enumerate(found):
        assert "".join(piece.text for piece in heard if piece.row == row) == one.text
        assert [piece.ended for piece in heard if piece.row == row][-1] == one.reason
    assert found[0].speed.prompt > 0 and found[0].speed.decoding > 0


def test_a_token_that_only_fills_up_the_vocabulary_is_never_generated():
    model = untrained()
    model.model.head.weight[257:] = 100 * model.model.head.weight[:7].abs()
    for options in (Sampling(tokens=50, temperature=0), Sampling(tokens=50, temperature=5.0)):
        assert max(generate(model, ["a"], options)[0].tokens) < 257


def test_a_trained_cell_speaks(text_cell):
    model = text_model_in(text_cell)
    (one,) = generate(model, ["the key "], Sampling(tokens=20, seed=1))
    assert one.text == model.decode(one.tokens) and one.reason in ("length", "end of document")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tokens": 0}, "tokens: at least 1 is needed, got 0"),
        ({"temperature": -1.0}, "temperature: at least 0 is needed"),
        ({"temperature": float("nan")}, "temperature: a number is needed"),
        ({"top_k": 0}, "top_k: at least 1"),
        ({"top_p": 0.0}, "top_p: a probability above 0 and up to 1 is needed, got 0.0"),
        ({"top_p": 1.5}, "top_p: a probability"),
        ({"stop": ("",)}, "stop: a list of strings that are not empty"),
        ({"stop": "abc"}, "stop: a list of strings"),
    ],
)
def test_options_that_make_no_sense_are_told(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Sampling(**options)


def test_prompts_that_are_none_are_told():
    with pytest.raises(ConfigError, match=r"prompt 1: 264 is no token; there are 0 to 263"):
        generate(untrained(), [[5], [264]])
    with pytest.raises(ConfigError, match="got one string"):
        generate(untrained(), "abc")
    assert generate(untrained(), []) == []


def test_a_model_that_has_diverged_is_told():
    model = untrained()
    model.model.embed.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="not finite"):
        generate(model, ["a"])
