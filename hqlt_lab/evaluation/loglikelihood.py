"""Batched log-likelihoods of continuations.

    the input of a row is c_1 .. c_m, w_1 .. w_{n-1}, its targets are w_1 .. w_n:
    log p(w_1 .. w_n | c) = sum over i of log p(w_i | c, w_1 .. w_{i-1}),      greedy if each w_i is the most probable

Rows of a batch are padded on the right, which does not change their results (`Layout`).  Logits are computed only at
positions with a target, and only for some of these positions at a time.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel

MAX_LOGITS = 2**24  # computed at a time


class ScoringRow(NamedTuple):
    """The input tokens of a row and its targets."""

    tokens: list[int]  # all but the last of context and continuation
    targets: list[int]  # the continuation; the last target is predicted at the last input token

    @property
    def length(self) -> int:
        return len(self.tokens)


class ContinuationScore(NamedTuple):
    """Score of a continuation."""

    log_probability: float
    is_greedy: bool  # True if greedy decoding would generate it


def make_scoring_row(context: Sequence[int], continuation: Sequence[int], length: int) -> ScoringRow:
    """Join context and continuation, truncated on the left to `length` input tokens."""
    tokens = [*context, *continuation][-(length + 1) :]
    return ScoringRow(tokens[:-1], list(continuation))


@torch.inference_mode()
def score_batch(model: SequenceModel, rows: Sequence[ScoringRow], device: torch.device) -> list[ContinuationScore]:
    """Score the rows of one batch."""
    tokens, valid_mask, labels = pad_rows(rows)
    assert model.embed is not None and model.head is not None
    layout = None if valid_mask.all() else Layout(valid_mask.to(device))
    x, _ = model.encode(model.embed(tokens.to(device)), layout=layout)
    has_label = labels >= 0
    log_probs, is_argmax = target_log_probabilities(x[has_label.to(device)], model.head, labels[has_label].to(device))
    counts = [len(row.targets) for row in rows]
    by_row = zip(log_probs.double().cpu().split(counts), is_argmax.cpu().split(counts), strict=True)
    return [ContinuationScore(float(values.sum()), bool(greedy.all())) for values, greedy in by_row]


def pad_rows(rows: Sequence[ScoringRow]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, the mask of valid positions, and labels (-1: no label), each [B, T]."""
    width = max(row.length for row in rows)
    tokens, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -1)
    valid_mask = torch.arange(width) < torch.tensor([row.length for row in rows])[:, None]
    for index, row in enumerate(rows):
        tokens[index, : row.length] = torch.tensor(row.tokens)
        labels[index, row.length - len(row.targets) : row.length] = torch.tensor(row.targets)
    return tokens, valid_mask, labels


def target_log_probabilities(x: Tensor, head: nn.Linear, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities [N] of the labels, and whether each is the most probable token; x [N, D]."""
    log_probs, is_argmax = [], []
    step = max(1, MAX_LOGITS // head.out_features)
    for features, targets in zip(x.split(step), labels.split(step), strict=True):
        logits = head(features)  # [step, V]
        all_log_probs = log_softmax(logits, -1, dtype=None if logits.dtype == torch.float64 else torch.float32)
        log_probs.append(all_log_probs.gather(1, targets[:, None])[:, 0])
        is_argmax.append(logits.argmax(-1) == targets)
    return torch.cat(log_probs), torch.cat(is_argmax)


def batch_by_length(rows: Sequence[ScoringRow], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of the rows of each batch, longest rows first, so that out-of-memory errors come early."""
    order = sorted(range(len(rows)), key=lambda index: (-rows[index].length, index))
    return (order[start : start + batch_size] for start in range(0, len(order), batch_size))
