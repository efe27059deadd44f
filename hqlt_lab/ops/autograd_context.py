"""Type of the context object that torch passes to the autograd formulas of a custom operator."""

from typing import Protocol

from torch import Tensor


class AutogradContext(Protocol):
    """The members of torch's autograd context that `setup_context` and `backward` of our operators use."""

    saved_tensors: tuple[Tensor, ...]  # contains None for an optional input that was None
    needs_input_grad: tuple[bool, ...]
    constants: tuple[int, ...]  # set by `setup_context`: the inputs of the operator that are not tensors

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...

    def mark_non_differentiable(self, *outputs: Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...
