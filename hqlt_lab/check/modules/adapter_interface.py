"""Interface of adapters: how the checks draw inputs for a target, run it, and hand on its cache.

The checks see all inputs as named tensors [B, T, ...]: one token stream for a module, token numbers for a language
model, queries, keys, values and gates for a function.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.modules.call_options import CallOptions

Inputs = dict[str, Tensor]


class NotApplicable(Exception):
    """A check cannot be tried on this target; the message is the reason."""


@dataclass(frozen=True)
class RunResult:
    """Output [B, T, ...] of a run, and the cache from which the next tokens continue."""

    output: Tensor
    cache: Any = None


class Adapter(ABC):
    """Calls a target that is built with random weights from a seed."""

    logits_may_be_float32 = False
    """Whether an output in float32 is accepted for every dtype of the parameters."""
    pads_prompts_left = False
    """Whether prompts of different lengths are padded on the left before cached decoding."""

    def __init__(self, name: str, settings: Mapping[str, Any], options: CallOptions) -> None:
        self.name, self.settings, self.options = name, dict(settings), options
        self.missing: dict[str, str] = {}
        """Reason why the target has no mask, cache, documents, parameters or files."""
        self._built: dict[torch.dtype, nn.Module | None] = {}

    @abstractmethod
    def build(self, seed: int) -> nn.Module | None:
        """Return the target with the weights of a seed; None for a function."""

    @abstractmethod
    def draw_inputs(self, rows: int, tokens: int, seed: int = 0) -> Inputs:
        """Return random inputs in float64, or token numbers."""

    @abstractmethod
    def run(
        self,
        module: nn.Module | None,
        inputs: Inputs,
        *,
        cache: Any = None,
        keeps_cache: bool = False,
        mask: Tensor | None = None,
        document_lengths: list[int] | None = None,
    ) -> RunResult:
        """Run the target, from a cache if one is given, with a mask [B, T], or with one row of packed documents."""

    def list_state_tensors(self, cache: Any) -> list[Tensor]:
        """Return the tensors of a cache that must not grow with the tokens."""
        return list(iterate_tensors(cache))

    def declared_state_bytes(self, module: nn.Module | None) -> int:
        """Return the declared bytes of the state of one row in float32."""
        if self.options.state_bytes is not None:
            return self.options.state_bytes
        declared = getattr(module, "state_bytes", None)
        if declared is None:
            raise NotApplicable("the target declares no size; give it with `--call state_bytes=N`")
        return int(declared() if callable(declared) else declared)

    def save_and_load(self, module: nn.Module, seed: int) -> nn.Module:
        """Return a module built from another seed that loaded the weights of a module."""
        raise NotApplicable("a function has no parameters")

    def require(self, capability: str) -> None:
        """Raise NotApplicable if the target has no mask, cache, documents or parameters."""
        if reason := self.missing.get(capability):
            raise NotApplicable(reason)

    @cached_property
    def value_dtype(self) -> torch.dtype:
        """The dtype of checks of values: float64, or float32 if the target cannot compute in float64."""
        try:
            self.compute(self.draw_inputs(1, self.options.round_length(8)), torch.float64)
        except Exception:  # a target may raise anything
            return torch.float32
        return torch.float64

    def module(self, dtype: torch.dtype | None = None) -> nn.Module | None:
        """Return the target in a dtype for checks of values: in evaluation mode, and no parameter is constant."""
        dtype = dtype or self.value_dtype
        if dtype not in self._built:
            module = self.build(seed=0)
            if module is not None:
                perturb_parameters(module)
                module = module.to(dtype).eval()
            self._built[dtype] = module
        return self._built[dtype]

    def compute(self, inputs: Inputs, dtype: torch.dtype | None = None, **arguments: Any) -> RunResult:
        """Run the target in a dtype, without gradients."""
        dtype = dtype or self.value_dtype
        with torch.no_grad():
            return self.run(self.module(dtype), convert_inputs(inputs, dtype), **arguments)


def perturb_parameters(module: nn.Module) -> None:
    """Add noise to all parameters, so that a path whose initial weight is 0 has an effect too."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(noise * (0.05 * parameter.abs().mean() + 0.02))


def convert_inputs(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}


def slice_tokens(inputs: Inputs, start: int, stop: int | None = None) -> Inputs:
    return {name: tensor[:, start:stop] for name, tensor in inputs.items()}


def slice_rows(inputs: Inputs, start: int, stop: int | None = None) -> Inputs:
    return {name: tensor[start:stop] for name, tensor in inputs.items()}


def join_tokens(first: Inputs, second: Inputs) -> Inputs:
    return {name: torch.cat([tensor, second[name]], 1) for name, tensor in first.items()}


def iterate_tensors(tree: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples, lists, dicts and objects."""
    seen = set() if seen is None else seen
    if id(tree) in seen:
        return
    seen.add(id(tree))
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from iterate_tensors(branch, seen)
    elif isinstance(tree, tuple | list):
        for branch in tree:
            yield from iterate_tensors(branch, seen)
    elif hasattr(tree, "__dict__") and not isinstance(tree, type | nn.Module):
        yield from iterate_tensors(vars(tree), seen)


def count_state_bytes(tensors: list[Tensor]) -> int:
    """Return the bytes that tensors hold in memory; those that share a storage are counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


@contextmanager
def fixed_seed(seed: int) -> Iterator[None]:
    """Seed torch's random numbers inside of a `with` block and restore them after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
