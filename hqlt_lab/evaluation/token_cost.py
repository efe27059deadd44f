"""What one more token costs after a context: milliseconds, and the bytes that are carried on.

    a context of n tokens is read in pieces; then `STEPS` tokens follow one by one, each from the state of the last

A window and fast weights cost the same after any context; softmax over everything costs more and more.
"""

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State
from hqlt_lab.train.long_context_file import Curve

STEPS, PIECE = 15, 1024


@torch.no_grad()
def token_cost(model: SequenceModel, contexts: Sequence[int]) -> list[Curve]:
    """Against the context, for one row of text whose content does not matter."""
    milliseconds, carried = [], []
    for context in contexts:
        state = read(model, noise(model, context))
        milliseconds.append((context, 1000 * median(step_times(model, state))))
        carried.append((context, float(bytes_of(state))))
    return [
        Curve(name="milliseconds_per_token", along="context", points=milliseconds),
        Curve(name="state_bytes", along="context", points=carried),
    ]


def noise(model: SequenceModel, length: int) -> Tensor:
    """Tokens [1, length]."""
    weight = next(model.parameters())
    vocabulary = model.config.vocabulary or 1
    return torch.randint(vocabulary, (1, length), generator=torch.Generator().manual_seed(0)).to(weight.device)


def read(model: SequenceModel, tokens: Tensor) -> State:
    """The state after a text [B, T], of which no logits are needed; in pieces, so that a long one takes no memory."""
    state: State | None = None
    for piece in tokens.split(PIECE, 1):
        _, state = model(piece, state, labels=torch.full_like(piece, -1))
    assert state is not None
    return state


def step_times(model: SequenceModel, state: State) -> Iterator[float]:
    """Seconds for each of some tokens; the first one warms up."""
    for number, token in enumerate(noise(model, STEPS + 1).unbind(1)):
        began = now(token)
        _, state = model(token[:, None], state)
        if number:
            yield now(token) - began


def now(x: Tensor) -> float:
    """The time when all that was asked of x's device is done."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def bytes_of(tree: Any) -> int:
    """Of all tensors in a state."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    return sum(map(bytes_of, tree)) if isinstance(tree, tuple) else 0
