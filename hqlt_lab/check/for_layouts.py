"""Promises that every part makes about padding, packed documents, rows and the size of its state."""

from typing import Any

import torch
from torch import Tensor

from hqlt_lab.check.alone import reads_like_each_alone
from hqlt_lab.check.report import Broken
from hqlt_lab.check.subject import WINDOW, Subject, in_pieces, noise, same, tensors
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State, select_rows
from hqlt_lab.model.state_size import state_size
from hqlt_lab.ops.chunked import CHUNK


@torch.no_grad()
def padding_changes_nothing(subject: Subject) -> None:
    """Before, behind or between the tokens, in whole rows, in one call or in pieces."""
    token = torch.arange(9)
    rows = [token >= 4, token < 5, (token < 2) | (token > 4), token < 0, token % 3 != 1]
    real = torch.stack(rows)
    for timing in timings(subject):
        model = subject.model(timing=timing, short_conv=3)
        layout = Layout(real, torch.zeros_like(real))
        told = f"timing {timing}, with padding, "
        reads_like_each_alone(model, told, noise(*real.shape, 8), layout, [None, [5, 4], [1] * 9])


@torch.no_grad()
def documents_are_read_as_if_alone(subject: Subject) -> None:
    """One after the other in a row, shorter and longer than a window and a chunk, cut anywhere."""
    lengths = [1, 2, WINDOW - 1, WINDOW, WINDOW + 1]
    short = torch.stack([beginnings([*lengths, 2]), beginnings([2, *reversed(lengths)])])
    long = torch.stack([beginnings([4, CHUNK + 6, 2]), beginnings([CHUNK + 6, 1, 5])])
    for timing in timings(subject):
        model = subject.model(timing=timing, short_conv=3)
        for starts, splits in ((short, [None, [4, 1, 9], [1] * 14]), (long, [None, [3, 40, 33]])):
            layout = Layout(torch.ones_like(starts), starts)
            told = f"timing {timing}, with several documents in a row, "
            reads_like_each_alone(model, told, noise(*starts.shape, 8), layout, splits)


@torch.no_grad()
def rows_can_be_selected(subject: Subject) -> None:
    """Reordered, dropped and repeated rows go on as they would have."""
    rows = torch.tensor([2, 0, 2])
    for timing in timings(subject):
        model, x = subject.model(timing=timing, short_conv=3), noise(3, 8, 8)
        _, state = model(x)
        more = noise(3, 5, 8, seed=1)
        answer, _ = model(more, select_rows(state, rows))
        for n, row in enumerate(rows.tolist()):
            whole, _ = model(torch.cat([x[row], more[n]])[None])
            same(f"timing {timing}: row {row}, now at {n}, goes on", answer[n : n + 1], whole[:, 8:])


@torch.no_grad()
def state_is_as_large_as_declared(subject: Subject) -> None:
    """To the byte, in every precision; and it grows only without a window."""
    for timing in timings(subject):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            model = subject.model(timing=timing, short_conv=3).to(dtype)
            for split in ([2], [40], [7, 1, 30]):
                _, state = in_pieces(model, noise(1, sum(split), 8).to(dtype), split)
                measured_is_declared(model, f"timing {timing}, {dtype}, ", state, sum(split))


def measured_is_declared(model: SequenceModel, where: str, state: State, context: int) -> None:
    """For a state of one row, after that many tokens of a document."""
    for memory, layer in zip(model.memories, state, strict=True):
        dtype = memory.to_q.weight.dtype
        declared = state_size(memory, context, dtype).total
        measured = sum(tensor.numel() * tensor.element_size() for tensor in tensors(layer))
        if measured != declared:
            raise Broken(f"{where}{context} tokens: {declared} bytes are declared, {measured} are measured.")
        for tensor in tensors(layer):
            if tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
                raise Broken(f"{where}{context} tokens: a piece of a larger tensor keeps all of it alive.")


def timings(subject: Subject) -> list[dict[str, Any]]:
    """Every timing, full attention too; or the one under test."""
    full = {"name": "synchronous", "window": None}
    return subject.timings() + ([] if subject.kind == "timing" else [full])


def beginnings(lengths: list[int]) -> Tensor:
    """[T]: the first token of each of the documents of these lengths; none for the first, which the text begins."""
    starts = torch.zeros(sum(lengths), dtype=torch.bool)
    starts[torch.tensor(lengths[:-1]).cumsum(0)] = True
    return starts
