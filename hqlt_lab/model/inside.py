"""Reaching into a model while it reads, without a trace: hooks on its layers that are gone afterwards."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import nn

from hqlt_lab.model.sequence_model import SequenceModel


def bare(model: nn.Module) -> SequenceModel:
    """The model itself, without what torch.compile wrapped around it."""
    found = getattr(model, "_orig_mod", model)
    if not isinstance(found, SequenceModel):
        raise ValueError(f"model: one that build_model or load gave is needed, got {type(model).__name__}.")
    return found


@contextmanager
def hooked(place: Callable[[], Any], *others: Callable[[], Any]) -> Iterator[None]:
    """While inside, these hooks are there; each argument sets one and gives its handle."""
    with ExitStack() as stack:
        for put in (place, *others):
            stack.callback(put().remove)
        yield


def eagerly(model: nn.Module) -> AbstractContextManager[Any]:
    """Inside, a compiled model runs as it is written: what is compiled knows nothing of hooks that came later."""
    if model is bare(model) and model._compiled_call_impl is None:
        return nullcontext()  # asking torch.compile would load all of it
    return cast(AbstractContextManager[Any], torch.compiler.set_stance("force_eager"))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is not training; afterwards each of its modules is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
