"""Our model behind the interface of transformers: generation, padding, caches and losses."""

import pytest
import torch
import torch.nn.functional as F

import hqlt_lab as lab
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_generation import generate
from hqlt_lab.hugging_face.configuration_hqlt import make_hqlt_config
from hqlt_lab.hugging_face.modeling_hqlt import HqltForCausalLM
from tests.generation.text_models import untrained_text_model

PROMPTS = ["the key", "a", "what was written before"]
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    {"timing": {"name": "synchronous", "window": None}, "mixer": "kv_only", "positions": "sinusoidal"},
    {"update_rule": "gated_delta", "mixer": "fw_only", "short_conv": 3},
]


@pytest.fixture(params=COMPOSITIONS, ids=lambda settings: "-".join(map(str, settings.values())))
def models(request):
    """Return one set of weights as a text model of the lab and as a model of transformers, in float64."""
    text_model = untrained_text_model(vocabulary=257, **request.param)
    hf_model = HqltForCausalLM(make_hqlt_config(text_model.model.config, text_model.separator)).double().eval()
    hf_model.model.load_state_dict(text_model.model.state_dict())
    return text_model, hf_model


def padded_inputs(text_model, side="left"):
    rows = [torch.tensor([text_model.separator, *text_model.encode(prompt)]) for prompt in PROMPTS]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=256, padding_side=side)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], True, 0.0, side).long()
    return {"input_ids": tokens, "attention_mask": mask}


def test_greedy_generation_with_left_padding_equals_ours(models):
    text_model, hf_model = models
    inputs = padded_inputs(text_model)
    rows = hf_model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    expected = generate(text_model, PROMPTS, Sampling(tokens=8, temperature=0))
    for row, result in zip(rows.tolist(), expected, strict=True):
        num_tokens = len(result.tokens)
        assert row[:num_tokens] == result.tokens and set(row[num_tokens:]) <= {text_model.separator}


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"num_beams": 3}, {"prefill_chunk_size": 2}], ids=str)
def test_generation_with_right_padding_equals_that_of_unpadded_rows(models, options):
    text_model, hf_model = models
    options = {"max_new_tokens": 8, "do_sample": False, **options}
    inputs = padded_inputs(text_model, "right")
    sequences = hf_model.generate(**inputs, **options)
    num_positions = inputs["input_ids"].shape[1]
    assert torch.equal(sequences[:, :num_positions], inputs["input_ids"])
    for row, tokens, mask in zip(sequences, inputs["input_ids"], inputs["attention_mask"], strict=True):
        unpadded = tokens[mask.bool()][None]
        expected = hf_model.generate(unpadded, **options)[0, unpadded.shape[1] :].tolist()
        continuation = row[num_positions:].tolist()
        assert continuation[: len(expected)] == expected
        assert set(continuation[len(expected) :]) <= {text_model.separator}


@pytest.fixture
def small_model():
    text_model = untrained_text_model(vocabulary=257, timing={"name": "synchronous", "window": 4})
    hf_model = HqltForCausalLM(make_hqlt_config(text_model.model.config, text_model.separator)).double().eval()
    hf_model.model.load_state_dict(text_model.model.state_dict())
    return text_model, hf_model


@pytest.mark.parametrize("by", ["keyword", "configuration"])
def test_right_padding_without_a_mask_is_found_by_a_padding_token_of_its_own(small_model, by):
    text_model, hf_model = small_model
    inputs, pad = padded_inputs(text_model, "right"), 255
    tokens = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, pad)
    options = {"max_new_tokens": 8, "do_sample": False}
    expected = hf_model.generate(tokens, attention_mask=inputs["attention_mask"], pad_token_id=pad, **options)
    if by == "keyword":
        options["pad_token_id"] = pad
    else:
        hf_model.generation_config.pad_token_id = pad
    assert torch.equal(hf_model.generate(tokens, **options), expected)
    assert torch.equal(hf_model.generate(input_ids=tokens, **options), expected)


def test_right_padding_without_a_mask_is_refused_if_the_padding_token_ends_a_text(small_model):
    text_model, hf_model = small_model
    assert hf_model.generation_config.pad_token_id == hf_model.generation_config.eos_token_id == text_model.separator
    tokens, options = padded_inputs(text_model, "right")["input_ids"], {"max_new_tokens": 3, "do_sample": False}
    with pytest.raises(ValueError, match="attention_mask"):
        hf_model.generate(tokens, **options)
    # rows without padding may end with the separator, such as the prompt of a new text
    for prompts in ([[text_model.separator]], [[1, text_model.separator], [2, text_model.separator]]):
        assert hf_model.generate(torch.tensor(prompts), **options).shape[1] > len(prompts[0])


def test_generation_continues_a_cache_with_right_padded_tokens(models):
    _, hf_model = models
    tokens, mask = torch.randint(0, 256, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[0, 7:] = 0
    cache = hf_model(tokens[:, :4], use_cache=True).past_key_values
    continued = hf_model.generate(tokens, attention_mask=mask, past_key_values=cache, max_new_tokens=5, do_sample=False)
    for row in range(2):
        unpadded = tokens[row : row + 1, : int(mask[row].sum())]
        expected = hf_model.generate(unpadded, max_new_tokens=5, do_sample=False)[0, unpadded.shape[1] :]
        assert continued[row, 9 : 9 + len(expected)].tolist() == expected.tolist()


def test_generation_from_a_row_of_padding_is_an_error(models):
    _, hf_model = models
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match="attention_mask: row 1"):
        hf_model.generate(torch.zeros(2, 3, dtype=torch.long), attention_mask=mask, max_new_tokens=2)


@pytest.mark.parametrize(
    "options", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}], ids=["beam", "sample"]
)
def test_generation_is_the_same_with_and_without_cache(models, options):
    text_model, hf_model = models
    outputs = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        inputs = padded_inputs(text_model)
        outputs.append(hf_model.generate(**inputs, max_new_tokens=6, use_cache=use_cache, **options))
    assert torch.equal(*outputs)


def test_padding_on_either_side_does_not_change_logits(models):
    text_model, hf_model = models
    for side in ("left", "right"):
        inputs = padded_inputs(text_model, side)
        logits = hf_model(**inputs).logits
        for row, prompt in enumerate(PROMPTS):
            tokens = torch.tensor([[text_model.separator, *text_model.encode(prompt)]])
            unpadded = hf_model(tokens).logits[0]
            torch.testing.assert_close(logits[row, inputs["attention_mask"][row].bool()], unpadded)
            assert torch.equal(unpadded, text_model.model(tokens)[0][0])


def test_forward_pass_continues_from_a_returned_cache(models):
    _, hf_model = models
    tokens = torch.randint(0, 256, (2, 13))
    first = hf_model(tokens[:, :6], use_cache=True)
    assert first.past_key_values.get_seq_length() == 6
    rest = hf_model(
        tokens[:, 6:], past_key_values=first.past_key_values, attention_mask=torch.ones(2, 13), logits_to_keep=3
    )
    torch.testing.assert_close(rest.logits, hf_model(tokens).logits[:, -3:])
    assert hf_model(tokens, use_cache=False).past_key_values is None


def test_labels_are_shifted_by_the_model(models):
    _, hf_model = models
    tokens = torch.randint(0, 256, (2, 9))
    labels = tokens.masked_fill(torch.rand(2, 9) < 0.2, -100)
    output = hf_model(tokens, labels=labels)
    expected = F.cross_entropy(output.logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
    torch.testing.assert_close(output.loss, expected)
    assert torch.equal(hf_model(tokens, labels=labels, return_dict=False)[0], output.loss)
    output.loss.backward()


def test_attention_mask_with_four_dimensions_is_an_error(models):
    _, hf_model = models
    with pytest.raises(ValueError, match=r"attention_mask: \[B, T\] is needed"):
        hf_model(torch.zeros(1, 3, dtype=torch.long), attention_mask=torch.ones(1, 1, 3, 3))
