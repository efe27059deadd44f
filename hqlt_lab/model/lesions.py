"""A lesion: at test time one memory falls silent, and what the model still can do was not that memory's work.

    with lesion(model, "fw"):
        logits, _ = model(tokens)            in every layer the mixer sees zeros in place of the fast weights' answer

Everything else stays: the other memory, the mixer's gates, the states.  A layer that never had the memory is as it was;
one that has no other passes on its residual stream alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from hqlt_lab.errors import ConfigError, did_you_mean
from hqlt_lab.model.inside import bare, eagerly, hooked

MEMORIES = ("fw", "kv")


@contextmanager
def lesion(model: nn.Module, memory: str) -> Iterator[None]:
    """Silence the fast weights ("fw") or softmax ("kv") of a model that has both."""
    layers = bare(model).memories
    check_memories({name for layer in layers for name in layer.mixer.reads}, memory)
    mixers = [layer.mixer for layer in layers if memory in layer.mixer.reads]
    silence = silent_fw if memory == "fw" else silent_kv
    with eagerly(model), hooked(*(partial(mixer.register_forward_pre_hook, silence) for mixer in mixers)):
        yield


def check_memories(there: set[str], memory: str) -> None:
    """A sentence unless this is a memory, and one of two."""
    if memory not in MEMORIES:
        raise ConfigError(
            f"lesion: no memory is called {memory!r}.{did_you_mean(memory, MEMORIES)} There is fw and kv."
        )
    if there != set(MEMORIES):
        raise ConfigError(
            f"lesion: this model has {' and '.join(sorted(there))} alone, so there is nothing to tell apart. "
            "Use a model whose mixer reads both memories."
        )


def silent_fw(mixer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, fw, kv = given
    return x, torch.zeros_like(fw), kv


def silent_kv(mixer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    x, fw, kv = given
    return x, fw, torch.zeros_like(kv)
