"""Cost of decoding one more token after a context: milliseconds and bytes of state.

    a context of n tokens is prefilled in chunks; then `TIMED_STEPS` tokens are decoded one by one

A softmax window and fast weights have constant cost; the cost of full softmax attention grows with the context.
"""

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State
from hqlt_lab.rundir.evaluations import LongContextCurve

TIMED_STEPS, PREFILL_CHUNK_TOKENS = 15, 1024


@torch.no_grad()
def measure_decoding_cost(model: SequenceModel, contexts: Sequence[int]) -> list[LongContextCurve]:
    """Measure time per token and state size after contexts of these lengths, for one row of random tokens."""
    milliseconds, state_bytes = [], []
    for context in contexts:
        state = prefill_state(model, random_tokens(model, context))
        milliseconds.append((context, 1000 * median(step_times(model, state))))
        state_bytes.append((context, float(count_tensor_bytes(state))))
    return [
        LongContextCurve(name="milliseconds_per_token", axis="context", points=milliseconds),
        LongContextCurve(name="state_bytes", axis="context", points=state_bytes),
    ]


def random_tokens(model: SequenceModel, length: int) -> Tensor:
    """Return random tokens [1, length] on the device of the model."""
    weight = next(model.parameters())
    vocabulary = model.config.vocabulary or 1
    return torch.randint(vocabulary, (1, length), generator=torch.Generator().manual_seed(0)).to(weight.device)


def prefill_state(model: SequenceModel, tokens: Tensor) -> State:
    """Return the state after tokens [B, T].  Processes them in chunks without logits, to limit memory use."""
    state: State | None = None
    for chunk in tokens.split(PREFILL_CHUNK_TOKENS, 1):
        _, state = model(chunk, state, labels=torch.full_like(chunk, -1))
    assert state is not None
    return state


def step_times(model: SequenceModel, state: State) -> Iterator[float]:
    """Yield the seconds of each decoded token, after one warm-up token."""
    for step, token in enumerate(random_tokens(model, TIMED_STEPS + 1).unbind(1)):
        start = device_time(token)
        _, state = model(token[:, None], state)
        if step:
            yield device_time(token) - start


def device_time(x: Tensor) -> float:
    """Return the time after all pending work on the device of x is finished."""
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def count_tensor_bytes(tree: Any) -> int:
    """Return the total size of all tensors in nested tuples."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    return sum(map(count_tensor_bytes, tree)) if isinstance(tree, tuple) else 0
