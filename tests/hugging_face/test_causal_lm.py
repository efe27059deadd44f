"""Behind the interface of transformers: generation, padding, losses."""

import pytest
import torch
import torch.nn.functional as F

import hqlt_lab as lab
from hqlt_lab.generation.generate import generate
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.hugging_face.causal_lm import HqltForCausalLM
from hqlt_lab.hugging_face.config import config_of
from tests.generation.speakers import untrained

PROMPTS = ["the key", "a", "what was written before"]
COMPOSITIONS = [
    *({"timing": {"name": name, "window": 4}} for name in lab.available("timing")),
    {"timing": {"name": "synchronous", "window": None}, "mixer": "kv_only", "positions": "sinusoidal"},
    {"update_rule": "gated_delta", "mixer": "fw_only", "short_conv": 3},
]


@pytest.fixture(params=COMPOSITIONS, ids=lambda one: "-".join(map(str, one.values())))
def pair(request):
    """The same model as ours and as theirs, in float64."""
    ours = untrained(vocabulary=257, **request.param)
    theirs = HqltForCausalLM(config_of(ours.model.config, ours.separator)).double().eval()
    theirs.model.load_state_dict(ours.model.state_dict())
    return ours, theirs


def padded(ours, side="left"):
    rows = [torch.tensor([ours.separator, *ours.encode(prompt)]) for prompt in PROMPTS]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=256, padding_side=side)
    real = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], True, 0.0, side).long()
    return {"input_ids": tokens, "attention_mask": real}


def test_greedy_generation_with_padding_on_the_left_says_what_ours_says(pair):
    ours, theirs = pair
    given = padded(ours)
    found = theirs.generate(**given, max_new_tokens=8, do_sample=False)[:, given["input_ids"].shape[1] :]
    for row, one in zip(found.tolist(), generate(ours, PROMPTS, Sampling(tokens=8, temperature=0)), strict=True):
        assert row[: len(one.tokens)] == one.tokens and set(row[len(one.tokens) :]) <= {ours.separator}


@pytest.mark.parametrize(
    "how", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}], ids=["beam", "sample"]
)
def test_generation_on_the_state_is_generation_without_it(pair, how):
    ours, theirs = pair
    found = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        found.append(theirs.generate(**padded(ours), max_new_tokens=6, use_cache=use_cache, **how))
    assert torch.equal(*found)


def test_padding_on_either_side_changes_no_logit(pair):
    ours, theirs = pair
    for side in ("left", "right"):
        given = padded(ours, side)
        logits = theirs(**given).logits
        for row, prompt in enumerate(PROMPTS):
            alone = theirs(torch.tensor([[ours.separator, *ours.encode(prompt)]])).logits[0]
            torch.testing.assert_close(logits[row, given["attention_mask"][row].bool()], alone)
            assert torch.equal(alone, ours.model(torch.tensor([[ours.separator, *ours.encode(prompt)]]))[0][0])


def test_a_text_may_go_on_from_the_cache_that_came_with_the_last_answer(pair):
    _, theirs = pair
    tokens = torch.randint(0, 256, (2, 13))
    first = theirs(tokens[:, :6], use_cache=True)
    assert first.past_key_values.get_seq_length() == 6
    rest = theirs(
        tokens[:, 6:], past_key_values=first.past_key_values, attention_mask=torch.ones(2, 13), logits_to_keep=3
    )
    torch.testing.assert_close(rest.logits, theirs(tokens).logits[:, -3:])
    assert theirs(tokens, use_cache=False).past_key_values is None


def test_labels_are_the_tokens_themselves_and_the_loss_is_of_the_next_one(pair):
    _, theirs = pair
    tokens = torch.randint(0, 256, (2, 9))
    labels = tokens.masked_fill(torch.rand(2, 9) < 0.2, -100)
    out = theirs(tokens, labels=labels)
    expected = F.cross_entropy(out.logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, expected)
    assert torch.equal(theirs(tokens, labels=labels, return_dict=False)[0], out.loss)
    out.loss.backward()


def test_a_mask_of_another_kind_is_told(pair):
    with pytest.raises(ValueError, match=r"attention_mask: \[B, T\] is needed"):
        pair[1](torch.zeros(1, 3, dtype=torch.long), attention_mask=torch.ones(1, 1, 3, 3))
