"""Lesions: replace the output of one memory by zeros at test time, to measure what the model can do without it.

    with lesion(model, "fw"):
        logits, _ = model(tokens)            in every layer the mixer gets zeros instead of the fast weights' output

The other memory, the gates of the mixer and the states do not change.  A layer without that memory is unaffected; in a
layer with only that memory, just the MLP remains.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from hqlt_lab.errors import ConfigError, did_you_mean, format_names, join_sentences
from hqlt_lab.model.analysis.context_managers import force_eager, temporary_hooks, unwrap_compiled

MEMORIES = ("fw", "kv")


@contextmanager
def lesion(model: nn.Module, memory: str) -> Iterator[None]:
    """Replace the output of the fast weights ("fw") or of softmax ("kv") by zeros, in a model that has both."""
    layers = unwrap_compiled(model).memories
    require_both_memories({name for layer in layers for name in layer.mixer.reads}, memory)
    mixers = [layer.mixer for layer in layers if memory in layer.mixer.reads]
    zero_output = zero_fw if memory == "fw" else zero_kv
    with (
        force_eager(model),
        temporary_hooks(*(partial(mixer.register_forward_pre_hook, zero_output) for mixer in mixers)),
    ):
        yield


def require_both_memories(present: set[str], memory: str) -> None:
    """Raise ConfigError unless `memory` is fw or kv and the model has both."""
    if memory not in MEMORIES:
        hint = join_sentences(did_you_mean(memory, MEMORIES), f"Memories: {format_names(MEMORIES)}.")
        raise ConfigError.at("lesion", "unknown_memory", f"no memory is called {memory!r}.", hint)
    if present != set(MEMORIES):
        raise ConfigError.at(
            "lesion",
            "lesion_of_single_memory",
            f"this model has only one memory, {' and '.join(sorted(present)) or 'none'}.",
            "Use a model whose mixer reads both.",
        )


def zero_fw(mixer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    x, fw, kv = inputs
    return x, torch.zeros_like(fw), kv


def zero_kv(mixer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    x, fw, kv = inputs
    return x, fw, torch.zeros_like(kv)
