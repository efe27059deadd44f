"""What a token costs after a long text: a hybrid's state stays as it is, that of softmax without a window grows.

    ratio = tokens per second of the hybrid / of kv_only without a window, at the same context

Both read the same random text of 1k, 4k and 16k tokens, then go on by some tokens, taking turns so that both meet the
same machine; medians count.  State bytes are those of the state that was handed on.

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
TURNS, PIECE = 5, 1024
SIZES = {"vocabulary": 2048, "width": 256, "heads": 4, "layers": 4}
MODELS = {
    "hybrid": {"timing": {"name": "delayed_stream", "window": 64}},
    "softmax": {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}},
}


def bytes_of(tree: object) -> int:
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    return sum(map(bytes_of, tree)) if isinstance(tree, tuple) else 0


def read(model: SequenceModel, text: Tensor) -> State:
    state = None
    for piece in text.split(PIECE, 1):
        _, state = model.encode(model.embed(piece), state)  # type: ignore[misc]
    assert state is not None
    return state


def seconds(model: SequenceModel, state: State, tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """For that many tokens after the state."""
    token = torch.zeros(1, 1, dtype=torch.long)
    started = clock()
    for _ in range(tokens):
        logits, state = model(token, state)
        token = logits.argmax(-1)
    return clock() - started


@torch.inference_mode()
def main(tokens: int) -> None:
    models = {name: lab.build_model(0, **SIZES, **settings).eval() for name, settings in MODELS.items()}
    for context in CONTEXTS:
        text = torch.randint(0, SIZES["vocabulary"], (1, context), generator=torch.Generator().manual_seed(0))
        states = {name: read(model, text) for name, model in models.items()}
        times = {name: [] for name in models}
        for _ in range(TURNS):
            for name, model in models.items():
                times[name].append(seconds(model, states[name], tokens))
        speed = {name: tokens / statistics.median(taken) for name, taken in times.items()}
        told = {f"{name} tokens/s": round(value) for name, value in speed.items()}
        told |= {f"{name} state bytes": bytes_of(states[name]) for name in models}
        print(json.dumps({"context": context, **told, "ratio": round(speed["hybrid"] / speed["softmax"], 2)}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
