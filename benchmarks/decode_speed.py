"""Decoding speed after a long context: the state of a hybrid has a constant size, that of full softmax attention grows.

    ratio = tokens per second of the hybrid / of kv_only without a window, at the same context

Both models read the same random sequence of 1k, 4k and 16k tokens and then decode some tokens, alternately, so that
both see the same machine load.  Medians count.  State bytes are those of the state after the context.

    python benchmarks/decode_speed.py [tokens]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

import hqlt_lab as lab
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State

CONTEXTS = (1024, 4096, 16384)
ROUNDS, PREFILL_TOKENS = 5, 1024
SIZES = {"vocabulary": 2048, "width": 256, "heads": 4, "layers": 4}
MODELS = {
    "hybrid": {"timing": {"name": "delayed_stream", "window": 64}},
    "softmax": {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}},
}


def count_bytes(tree: object) -> int:
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    return sum(map(count_bytes, tree)) if isinstance(tree, tuple) else 0


def prefill_state(model: SequenceModel, tokens: Tensor) -> State:
    state = None
    for chunk in tokens.split(PREFILL_TOKENS, 1):
        _, state = model.encode(model.embed(chunk), state)  # type: ignore[misc]
    assert state is not None
    return state


def time_decoding(
    model: SequenceModel, state: State, tokens: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds for decoding this many tokens from a state."""
    token = torch.zeros(1, 1, dtype=torch.long)
    start = clock()
    for _ in range(tokens):
        logits, state = model(token, state)
        token = logits.argmax(-1)
    return clock() - start


@torch.inference_mode()
def main(tokens: int) -> None:
    models = {name: lab.build_model(0, **SIZES, **settings).eval() for name, settings in MODELS.items()}
    for context in CONTEXTS:
        sequence = torch.randint(0, SIZES["vocabulary"], (1, context), generator=torch.Generator().manual_seed(0))
        states = {name: prefill_state(model, sequence) for name, model in models.items()}
        times = {name: [] for name in models}
        for _ in range(ROUNDS):
            for name, model in models.items():
                times[name].append(time_decoding(model, states[name], tokens))
        speed = {name: tokens / statistics.median(seconds) for name, seconds in times.items()}
        row = {f"{name} tokens/s": round(value) for name, value in speed.items()}
        row |= {f"{name} state bytes": count_bytes(states[name]) for name in models}
        print(json.dumps({"context": context, **row, "ratio": round(speed["hybrid"] / speed["softmax"], 2)}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
