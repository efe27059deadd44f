"""Generation on a state equals the reference implementation, which reads the whole sequence for every token."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.errors import TrainingError
from hqlt_lab.generation.batch_decoder import BatchDecoder
from hqlt_lab.generation.prefill_decode import prefill_prompts, tokenize_prompts
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_generation import generate, stream_text
from hqlt_lab.generation.text_model import load_text_model
from hqlt_lab.generation.uncached_reference import generate_without_state
from tests.generation.text_models import untrained_text_model
from tests.issues import raises_issue

PROMPTS = ["", "the key", "a memory that holds what was written", "né"]
GREEDY = Sampling(tokens=10, temperature=0)
SAMPLED = Sampling(tokens=10, temperature=1.3, top_k=40, top_p=0.95, seed=3)
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    *({"timing": {"name": name, "window": 4}, "short_conv": 3} for name in lab.available("timing")),
    {"timing": {"name": "delayed_stream", "window": 4}, "update_rule": "delta_product", "mixer": "independent_vector"},
    {"timing": {"name": "delayed_chunk", "window": 4}, "update_rule": "linear_attention", "mixer": "sum"},
    {"update_rule": "gated_delta", "mixer": "fw_only"},
    {"timing": {"name": "synchronous", "window": 4, "sinks": 2}, "attention": "forgetting", "meta_tokens": 3},
    {"timing": {"name": "synchronous", "window": None}, "mixer": "kv_only", "positions": "sinusoidal"},
]


def composition_id(settings):
    return "-".join(value["name"] if isinstance(value, dict) else str(value) for value in settings.values())


def decode_with_logits(model, options, chunk_length=2048):
    """Return the tokens of each row, and the logits from which each of them was sampled."""
    decoder = BatchDecoder(model, tokenize_prompts(model, PROMPTS), options, chunk_length=chunk_length)
    rows, logits = list(decoder.rows), {row.row_index: [] for row in decoder.rows}
    while decoder.rows:
        for row, row_logits in zip(decoder.rows, decoder.logits, strict=True):
            logits[row.row_index].append(row_logits)
        decoder.step()
    tokens = [row.detokenizer.generated_tokens for row in rows]
    return tokens, [torch.stack(row_logits) for row_logits in logits.values()]


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("settings", COMPOSITIONS, ids=composition_id)
def test_generation_on_a_state_equals_the_reference_at_every_step(settings, options):
    model = untrained_text_model(**settings)
    tokens, logits = decode_with_logits(model, options)
    for row, prompt in enumerate(PROMPTS):
        expected_tokens, expected_logits = generate_without_state(model, prompt, options, row)
        assert tokens[row] == expected_tokens
        torch.testing.assert_close(logits[row], expected_logits)


@pytest.mark.parametrize("settings", COMPOSITIONS, ids=composition_id)
def test_prefill_gives_the_same_result_with_any_chunk_length(settings):
    model = untrained_text_model(**settings)
    rows = tokenize_prompts(model, PROMPTS)
    expected, state = prefill_prompts(model, rows)
    for chunk_length in (1, 7):
        logits, chunked_state = prefill_prompts(model, rows, chunk_length)
        torch.testing.assert_close(logits, expected)
        torch.testing.assert_close(chunked_state[0].document_length, state[0].document_length)
    assert decode_with_logits(model, SAMPLED, chunk_length=5)[0] == decode_with_logits(model, SAMPLED)[0]


def test_row_generates_the_same_tokens_alone_and_in_any_batch():
    model = untrained_text_model(timing={"name": "delayed_chunk", "window": 4})
    together = generate(model, PROMPTS, SAMPLED)
    in_pairs = generate(model, PROMPTS, SAMPLED, batch_size=2)
    assert [result.tokens for result in together] == [result.tokens for result in in_pairs]
    for row, prompt in enumerate(tokenize_prompts(model, PROMPTS)):
        decoder = BatchDecoder(model, [prompt], SAMPLED, first_row=row)
        (single_row,) = decoder.rows
        while decoder.rows:
            decoder.step()
        assert single_row.detokenizer.generated_tokens == together[row].tokens
    assert len({tuple(result.tokens) for result in generate(model, ["a"] * 4, SAMPLED)}) == 4
    assert generate(model, ["a"], SAMPLED)[0].tokens != generate(model, ["a"], Sampling(seed=4, tokens=10))[0].tokens


def test_prompt_begins_with_the_separator_as_documents_do():
    model = untrained_text_model()
    assert tokenize_prompts(model, ["", "Hi"]) == [[256], [256, 72, 105]]
    assert tokenize_prompts(model, [[72, 105], [256, 72]]) == [[256, 72, 105], [256, 72]]
    same = [generate(model, [prompt], GREEDY)[0].tokens for prompt in ("Hi", [72, 105], [256, 72, 105])]
    assert same[0] == same[1] == same[2]


def test_finished_rows_leave_the_batch_and_have_a_finish_reason():
    model = untrained_text_model(seed=1)
    options = Sampling(tokens=150, temperature=1.0, stop=("e",))
    decoder = BatchDecoder(model, tokenize_prompts(model, ["a"] * 12), options)
    sizes = []
    while decoder.rows:
        sizes.append(len(decoder.rows))
        assert len(decoder.logits) == len(decoder.state[0].document_length) == len(decoder.rows)
        decoder.step()
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 12 and sizes[-1] < 12
    results = generate(model, ["a"] * 12, options)
    assert {result.reason for result in results} == {"stop", "end of document", "length"}
    for result in results:
        assert (len(result.tokens) == 150) == (result.reason == "length")
        assert model.separator not in result.tokens and "e" not in result.text
        assert (model.decode(result.tokens[-1:]) == "e") == (result.reason == "stop")
    (result,) = generate(model, ["a"], Sampling(tokens=3))
    assert result.reason == "length" and len(result.tokens) == 3


def test_chunks_add_up_to_the_text_and_are_passed_to_on_chunk():
    model, chunks = untrained_text_model(), []
    results = generate(model, PROMPTS, SAMPLED, on_chunk=chunks.append)
    assert chunks == list(stream_text(model, PROMPTS, SAMPLED))
    for row, result in enumerate(results):
        row_chunks = [chunk for chunk in chunks if chunk.row_index == row]
        assert "".join(chunk.text for chunk in row_chunks) == result.text
        assert row_chunks[-1].finish_reason == result.reason
    assert results[0].speed.prompt > 0 and results[0].speed.decoding > 0


def test_padding_tokens_of_the_vocabulary_are_never_generated():
    model = untrained_text_model()
    model.model.head.weight[257:] = 100 * model.model.head.weight[:7].abs()
    for options in (Sampling(tokens=50, temperature=0), Sampling(tokens=50, temperature=5.0)):
        assert max(generate(model, ["a"], options)[0].tokens) < 257


def test_trained_cell_generates_text(text_cell):
    model = load_text_model(text_cell)
    (result,) = generate(model, ["the key "], Sampling(tokens=20, seed=1))
    assert result.text == model.decode(result.tokens) and result.reason in ("length", "end of document")


@pytest.mark.parametrize(
    ("options", "path", "code"),
    [
        ({"tokens": 0}, "tokens", "below_minimum"),
        ({"temperature": -1.0}, "temperature", "below_minimum"),
        ({"temperature": float("nan")}, "temperature", "not_a_number"),
        ({"top_k": 0}, "top_k", "below_minimum"),
        ({"top_p": 0.0}, "top_p", "out_of_range"),
        ({"top_p": 1.5}, "top_p", "out_of_range"),
        ({"stop": ("",)}, "stop", "not_a_list_of_strings"),
        ({"stop": "abc"}, "stop", "not_a_list_of_strings"),
    ],
)
def test_invalid_options_are_an_error(options, path, code):
    with raises_issue(path, code):
        Sampling(**options)


def test_invalid_prompts_are_an_error():
    with raises_issue("prompts[1]", "unknown_token"):
        generate(untrained_text_model(), [[5], [264]])
    with raises_issue("prompts", "not_a_list_of_prompts"):
        generate(untrained_text_model(), "abc")
    assert generate(untrained_text_model(), []) == []


def test_logits_that_are_not_finite_are_an_error():
    model = untrained_text_model()
    model.model.embed.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="not finite"):
        generate(model, ["a"])
