"""One layer by a backend, beside the same layer by the truth: answers, state and gradients.

The truth is the layer in float64 with the fast weights one step at a time and softmax under one mask.  Compared is the
worst tensor, by its largest deviation over its largest number, of

    whole        a row of 67 tokens from nothing: an odd length that crosses a chunk of 64
    documents    two in each row, with padding behind the last
    going on     both, from a state that 9 tokens have left
    decoding     7 tokens from a state, without gradients, which may take other kernels
"""

from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.check.subject import noise, tensors
from hqlt_lab.model.config import ModelConfig, OpsConfig
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.layout import Layout, Places, places_of
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import MemoryState

TRUTH = OpsConfig(scan="recurrent", attention="dense")
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
WIDTH, HEADS = 32, 2


class Case(NamedTuple):
    """What goes through the layer."""

    name: str
    rows: int
    length: int
    documents: bool = False
    past: bool = False
    learning: bool = True


CASES = (
    Case("whole", 1, 67),
    Case("documents", 2, 67, documents=True),
    Case("going on", 2, 67, documents=True, past=True),
    Case("decoding", 2, 7, past=True, learning=False),
)


class Trial(NamedTuple):
    """A composition of one layer, computed on a device in a precision."""

    update_rule: Any
    timing: Any
    mixer: str  # fw_only or kv_only: one memory at a time
    ops: OpsConfig
    device: str
    dtype: torch.dtype

    def errors(self, cases: tuple[Case, ...]) -> Iterator[tuple[Case, float]]:
        """How far off the backend is in each case."""
        truth = self.layer()
        truth.use(TRUTH)
        layer = deepcopy(truth).to(self.device, torch.promote_types(torch.float32, self.dtype))
        layer.use(self.ops)
        for case in cases:
            x, state, places = given(case, truth)
            right = run(truth, x, state, places, case.learning)
            mixed = torch.autocast(self.device, self.dtype) if self.dtype.itemsize < 4 else nullcontext()
            with mixed:
                x, state, places = moved((x, state, places), next(layer.parameters()))
                found = run(layer, x, state, places, case.learning)
            errors = [off(one, other) for one, other in zip(found, right, strict=True)]
            yield (
                case,
                torch.tensor(errors).max().item(),
            )  # unlike Python's max, it does not pass over what is no number

    def layer(self) -> HybridMemory:
        parts = {"update_rule": self.update_rule, "timing": self.timing, "mixer": self.mixer, "positions": "rope"}
        config = ModelConfig(width=WIDTH, heads=HEADS, layers=1, init_std=0.5, **parts)
        model = SequenceModel(config)
        initialise(model, config, 0)
        return model.double().memories[0]


def given(case: Case, truth: HybridMemory) -> tuple[Tensor, MemoryState | None, Places]:
    """The text, the state it goes on from, and where its documents and its padding lie."""
    state = None
    if case.past:
        with torch.no_grad():
            _, state = truth(noise(case.rows, 9, WIDTH, seed=1))
    x = noise(case.rows, case.length, WIDTH, seed=2)
    layout = None
    if case.documents:
        starts = torch.zeros(2, case.length, dtype=torch.bool)
        starts[0, 20] = starts[1, 41] = True
        starts[:, 0] = not case.past
        layout = Layout(torch.arange(case.length) < torch.tensor([[case.length], [case.length - 5]]), starts)
    return x, state, places_of(x, None if state is None else state.count, layout)


def moved(tree: Any, like: Tensor) -> Any:
    """All its numbers where and what those of `like` are; whole numbers stay whole."""
    if isinstance(tree, Tensor):
        return tree.to(like.device, like.dtype if tree.is_floating_point() else tree.dtype)
    if isinstance(tree, tuple):
        branches = [moved(branch, like) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def run(layer: HybridMemory, x: Tensor, state: MemoryState | None, places: Places, learning: bool) -> list[Tensor]:
    """Answers where there are tokens, the fast weights; and the gradients of the text, the state and all parameters."""
    leaves = [x, *([] if state is None else [state.fw] if state.fw is not None else [])]
    if not learning:
        with torch.no_grad():
            y, after = layer(x, state, places)
            return told(y, after, places)
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    if len(leaves) > 1 and state is not None:
        state = state._replace(fw=leaves[1])
    y, after = layer(leaves[0], state, places)
    answers = told(y, after, places)
    loss = sum((one * noise(*one.shape, seed=3).to(one.device)).sum() for one in answers)
    return [*answers, *torch.autograd.grad(loss, [*leaves, *layer.parameters()], materialize_grads=True)]  # type: ignore[arg-type]


def told(y: Tensor, after: MemoryState, places: Places) -> list[Tensor]:
    """In float64, and nothing at padding."""
    if places.length is not None:
        real = torch.arange(y.shape[1], device=y.device) < places.length[:, None]
        y = y.masked_fill(~real[..., None], 0.0)
    return [one.double() for one in (y, *tensors((after.fw,) if after.fw is not None else ()))]


def off(one: Tensor, other: Tensor) -> float:
    """The largest deviation over the largest number."""
    one, other = one.detach().cpu().double(), other.detach().cpu().double()
    return ((one - other).abs().max() / other.abs().max().clamp(min=1e-9)).item()
