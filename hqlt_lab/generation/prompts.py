"""Prompts as tokens, and a model's answer to each: the logits after its last token, and the state to go on from.

A prompt begins with the separator, as every document does in training; an empty one is the separator alone.  Rows of
different lengths are read together, in pieces of so many tokens that memory does not grow with the prompt, and only
the last token of a row is led through the head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State

PIECE = 2048  # tokens of a prompt that are read at once
Prompts = Sequence[str] | Sequence[Sequence[int]]


def tokens_of(model: TextModel, prompts: Prompts) -> list[list[int]]:
    """Each prompt's tokens, the separator first."""
    if isinstance(prompts, str):
        raise ConfigError("prompts: a list of prompts is needed, got one string. Put it into a list.")
    rows = [model.encode(one) if isinstance(one, str) else [int(token) for token in one] for one in prompts]
    size = model.model.config.vocabulary or 0
    wrong = [
        f"prompt {number}: {token} is no token; there are 0 to {size - 1}."
        for number, row in enumerate(rows)
        for token in [next((token for token in row if not 0 <= token < size), None)]
        if token is not None
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return [row if row[:1] == [model.separator] else [model.separator, *row] for row in rows]


@torch.inference_mode()
def read(model: TextModel, rows: Sequence[Sequence[int]], piece: int = PIECE) -> tuple[Tensor, State]:
    """Logits [N, vocabulary] after the last token of each row, and the state there."""
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(model.device)
    real = torch.arange(padded.shape[1], device=model.device) < lengths[:, None]  # [N, T]
    last, state = None, None
    for first in range(0, padded.shape[1], piece):
        x, state = hidden(model.model, padded[:, first : first + piece], real[:, first : first + piece], state)
        # a row that ended before has nothing here, and one that goes on is overwritten by the next piece
        here = (lengths - 1 - first).clamp(0, x.shape[1] - 1)
        found = x[torch.arange(len(x), device=model.device), here]  # [N, width]
        last = found if last is None else torch.where((lengths > first)[:, None], found, last)
    assert last is not None and state is not None
    return logits_of(model, last), state


@torch.inference_mode()
def advance(model: TextModel, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
    """The same after one more token in each row."""
    x = torch.tensor(tokens, device=model.device)[:, None]
    x, state = hidden(model.model, x, None, state)
    return logits_of(model, x[:, 0]), state


def hidden(model: SequenceModel, tokens: Tensor, real: Tensor | None, state: State | None) -> tuple[Tensor, State]:
    """What the head would read, [N, T, width]."""
    assert model.embed is not None
    layout = None if real is None or bool(real.all()) else Layout(real)
    return model.encode(model.embed(tokens), state, layout)


def logits_of(model: TextModel, x: Tensor) -> Tensor:
    """Of the tokens that mean something, [N, vocabulary], for x [N, width]."""
    assert model.model.head is not None
    return model.model.head(x)[:, : model.vocabulary]
