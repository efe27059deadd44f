"""Context managers for inspecting a model: temporary hooks, eager execution, evaluation mode."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import nn

from hqlt_lab.model.sequence_model import SequenceModel


def unwrap_compiled(model: nn.Module) -> SequenceModel:
    """Return the SequenceModel itself, without the wrapper of torch.compile."""
    unwrapped = getattr(model, "_orig_mod", model)
    if not isinstance(unwrapped, SequenceModel):
        raise ValueError(f"model: a model from build_model or load is needed, got {type(model).__name__}.")
    return unwrapped


@contextmanager
def temporary_hooks(register: Callable[[], Any], *more_registers: Callable[[], Any]) -> Iterator[None]:
    """Register hooks on entry and remove them on exit.  Each argument registers one hook and returns its handle."""
    with ExitStack() as stack:
        for register_hook in (register, *more_registers):
            stack.callback(register_hook().remove)
        yield


def force_eager(model: nn.Module) -> AbstractContextManager[Any]:
    """Return a context in which a compiled model runs eagerly: compiled code ignores hooks added later."""
    if model is unwrap_compiled(model) and model._compiled_call_impl is None:
        return nullcontext()  # not compiled; torch.compiler.set_stance would load all of torch.compile
    return cast(AbstractContextManager[Any], torch.compiler.set_stance("force_eager"))


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode, and restore the mode of each module on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
