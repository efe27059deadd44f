"""Log-likelihoods of the tokens that are asked about, many rows at a time.

    a row reads c_1 .. c_m, w_1 .. w_{n-1} and is asked about w_1 .. w_n:
    log p(w_1 .. w_n | c) = sum over i of log p(w_i | c, w_1 .. w_{i-1}),      greedy if each w_i is the likeliest

Rows of one batch are padded behind, which changes nothing in them (`Layout`).  Logits exist only where something is
asked, and only for some of these places at a time.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel

LOGITS = 2**24  # at a time


class Row(NamedTuple):
    """What is read, and how many of the tokens after it are asked about."""

    tokens: list[int]  # all but the last of context and continuation
    asked: list[int]  # the continuation; the last of them is due after the last token

    @property
    def length(self) -> int:
        return len(self.tokens)


class Likelihood(NamedTuple):
    """Of a continuation."""

    log_probability: float
    greedy: bool  # whether it is what the model itself would have said


def row_of(context: Sequence[int], continuation: Sequence[int], length: int) -> Row:
    """Context and continuation, cut on the left to `length` tokens that are read."""
    whole = [*context, *continuation][-(length + 1) :]
    return Row(whole[:-1], list(continuation))


@torch.inference_mode()
def score(model: SequenceModel, rows: Sequence[Row], device: torch.device) -> list[Likelihood]:
    """One batch."""
    tokens, real, labels = padded(rows)
    assert model.embed is not None and model.head is not None
    layout = None if real.all() else Layout(real.to(device))
    x, _ = model.encode(model.embed(tokens.to(device)), layout=layout)
    asked = labels >= 0
    found, likeliest = at_places(x[asked.to(device)], model.head, labels[asked].to(device))
    counts = [len(row.asked) for row in rows]
    parts = zip(found.double().cpu().split(counts), likeliest.cpu().split(counts), strict=True)
    return [Likelihood(float(each.sum()), bool(same.all())) for each, same in parts]


def padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, what is real, and labels, -1 where nothing is asked; each [B, T]."""
    width = max(row.length for row in rows)
    tokens, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -1)
    real = torch.arange(width) < torch.tensor([row.length for row in rows])[:, None]
    for number, row in enumerate(rows):
        tokens[number, : row.length] = torch.tensor(row.tokens)
        labels[number, row.length - len(row.asked) : row.length] = torch.tensor(row.asked)
    return tokens, real, labels


def at_places(x: Tensor, head: nn.Linear, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of the labels, and whether each is the likeliest; x [N, D]."""
    found, likeliest = [], []
    step = max(1, LOGITS // head.out_features)
    for some, due in zip(x.split(step), labels.split(step), strict=True):
        logits = head(some)  # [step, V]
        precise = log_softmax(logits, -1, dtype=None if logits.dtype == torch.float64 else torch.float32)
        found.append(precise.gather(1, due[:, None])[:, 0])
        likeliest.append(logits.argmax(-1) == due)
    return torch.cat(found), torch.cat(likeliest)


def batches(rows: Sequence[Row], size: int) -> Iterator[list[int]]:
    """Numbers of rows that go together: the longest first, so that what does not fit the memory is told at once."""
    order = sorted(range(len(rows)), key=lambda number: (-rows[number].length, number))
    return (order[start : start + size] for start in range(0, len(order), size))
