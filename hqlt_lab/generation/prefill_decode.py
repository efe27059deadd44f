"""Tokenize and prefill prompts: compute the logits after the last token of each prompt, and the state to continue from.

A prompt begins with the separator, as every document does in training; an empty prompt is the separator alone.  Rows of
different lengths are prefilled together, in chunks, so that memory does not grow with the prompt.  Only the last token
of a row passes through the head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State

PREFILL_CHUNK_TOKENS = 2048  # tokens of a prompt that are read in one forward pass
Prompts = Sequence[str] | Sequence[Sequence[int]]


def tokenize_prompts(model: TextModel, prompts: Prompts) -> list[list[int]]:
    """Return the tokens of each prompt, with the separator first."""
    if isinstance(prompts, str):
        message = "a list of prompts is needed, got one string."
        raise ConfigError.at("prompts", "not_a_list_of_prompts", message, "Put it into a list.")
    rows = [model.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt] for prompt in prompts]
    size = model.model.config.vocabulary or 0
    issues = [
        ConfigIssue(f"prompts[{number}]", "unknown_token", f"{token} is not a token.", f"Tokens: 0 to {size - 1}.")
        for number, row in enumerate(rows)
        for token in [next((token for token in row if not 0 <= token < size), None)]
        if token is not None
    ]
    if issues:
        raise ConfigError(*issues)
    return [row if row[:1] == [model.separator] else [model.separator, *row] for row in rows]


@torch.inference_mode()
def prefill_prompts(
    model: TextModel, rows: Sequence[Sequence[int]], chunk_length: int = PREFILL_CHUNK_TOKENS
) -> tuple[Tensor, State]:
    """Return the logits [N, vocabulary] after the last token of each row, and the state after it."""
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(model.device)
    valid_mask = torch.arange(padded.shape[1], device=model.device) < lengths[:, None]  # [N, T]
    last_hidden, state = None, None
    for first in range(0, padded.shape[1], chunk_length):
        chunk = slice(first, first + chunk_length)
        x, state = hidden_states(model.model, padded[:, chunk], valid_mask[:, chunk], state)
        # a row that ended in an earlier chunk keeps its value, and one that continues is overwritten by the next chunk
        position = (lengths - 1 - first).clamp(0, x.shape[1] - 1)
        hidden = x[torch.arange(len(x), device=model.device), position]  # [N, width]
        last_hidden = hidden if last_hidden is None else torch.where((lengths > first)[:, None], hidden, last_hidden)
    assert last_hidden is not None and state is not None
    return compute_logits(model, last_hidden), state


@torch.inference_mode()
def decode_step(model: TextModel, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
    """Read one more token in each row; return the logits [N, vocabulary] after it, and the new state."""
    x = torch.tensor(tokens, device=model.device)[:, None]
    x, state = hidden_states(model.model, x, None, state)
    return compute_logits(model, x[:, 0]), state


def hidden_states(
    model: SequenceModel, tokens: Tensor, valid_mask: Tensor | None, state: State | None
) -> tuple[Tensor, State]:
    """Return the hidden states [N, T, width] before the head, and the new state."""
    assert model.embed is not None
    layout = None if valid_mask is None or bool(valid_mask.all()) else Layout(valid_mask)
    return model.encode(model.embed(tokens), state, layout)


def compute_logits(model: TextModel, x: Tensor) -> Tensor:
    """Return the logits [N, vocabulary] of x [N, width], without the padding of the vocabulary."""
    assert model.model.head is not None
    return model.model.head(x)[:, : model.vocabulary]
