"""What a layout promises, the slow way: every document of every row in a call of its own."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from hqlt_lab.check.report import Broken
from hqlt_lab.check.subject import same, tensors
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State, last, select_rows


def documents(layout: Layout, row: int) -> list[Tensor]:
    """The places of each document's tokens in that row."""
    real, starts = layout
    assert real is not None and starts is not None
    tokens = real[row].nonzero()[:, 0]
    first = starts[row, tokens].nonzero()[:, 0].tolist()
    cuts = sorted({0, *first, len(tokens)})
    return [tokens[a:b] for a, b in pairwise(cuts)]


def each_alone(model: SequenceModel, x: Tensor, layout: Layout) -> tuple[Tensor, list[State | None]]:
    """The answers, 0 at padding, and each row's state after its last document (None: it has none)."""
    size = model.config.vocabulary or model.config.width
    answers = torch.zeros(*x.shape[:2], size, dtype=next(model.parameters()).dtype)
    states: list[State | None] = []
    for row in range(len(x)):
        state: State | None = None
        for places in documents(layout, row):
            answer, state = model(x[row : row + 1, places])
            answers[row, places] = answer[0]
        states.append(state)
    return answers, states


def laid_out(
    model: SequenceModel, x: Tensor, layout: Layout, split: Iterable[int] | None = None
) -> tuple[Tensor, State]:
    """The same text and layout in one call, or in pieces of these lengths."""
    state: State | None = None
    answers, start = [], 0
    for length in split or [x.shape[1]]:
        piece = slice(start, start + length)
        part = Layout(*(None if field is None else field[:, piece] for field in layout))
        answer, state = model(x[:, piece], state, part)
        answers.append(answer)
        start += length
    assert state is not None and start == x.shape[1]
    return torch.cat(answers, 1), state


def same_states(where: str, model: SequenceModel, state: State, alone: list[State | None]) -> None:
    """Each row remembers what its last document alone would have left, and a row without any remembers nothing."""
    for row, expected in enumerate(alone):
        mine = select_rows(state, torch.tensor([row]))
        for memory, one, other in zip(model.memories, mine, expected or mine, strict=True):
            if len(tensors(one)) != len(tensors(other)):
                raise Broken(f"{where}the state of row {row} has other fields.")
            for got, want in zip(tensors(one), tensors(other), strict=True):
                if memory.room is None and want.dim() > 2:  # as long as the longest row's
                    want = last(want, got.shape[2]) if want.shape[2] <= got.shape[2] else want
                same(f"{where}the state of row {row}", got, want if expected else torch.zeros_like(got))


def reads_like_each_alone(
    model: SequenceModel, where: str, x: Tensor, layout: Layout, splits: Iterable[list[int] | None]
) -> None:
    """Answers and state, in every split; what stands at padding is no number."""
    alone, states = each_alone(model, x, layout)
    assert layout.real is not None
    x = x.masked_fill(~layout.real[..., None], torch.nan)
    for split in splits:
        told = where if split is None else f"{where}in pieces of {split}, "
        answer, state = laid_out(model, x, layout, split)
        same(f"{told}the answer", answer, alone)
        same_states(told, model, state, states)
