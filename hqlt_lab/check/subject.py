"""The part under test, and the small models it is tested in.

Float64, two heads of four channels, a window of three tokens: small enough to try every split and every pair of
parts, long enough to cross several windows and chunks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.check.report import Broken
from hqlt_lab.model.config import PARTS, ModelConfig
from hqlt_lab.model.initialise import initialise
from hqlt_lab.model.sequence_model import SequenceModel, State
from hqlt_lab.registry import available, options

WINDOW = 3
TOLERANCE = 1e-9  # float64


@dataclass(frozen=True)
class Subject:
    """One part with its options."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        return small(self.kind, self.name) | self.options

    def model(self, seed: int = 0, **others: Any) -> SequenceModel:
        """A model of one layer that has the part; `others` are further settings.  Vectors in, vectors out, float64."""
        settings: dict[str, Any] = {"timing": small("timing", "synchronous"), "mixer": "sum", "positions": "none"}
        if self.kind == "feature_map":
            settings["update_rule"] = "retention"  # goes with every feature map
        settings |= others | {self.kind: self.spec}
        config = ModelConfig(**({"width": 8, "heads": 2, "layers": 1, "mlp_width": 16, "init_std": 0.5} | settings))
        model = SequenceModel(config)
        initialise(model, config, seed)
        return model.double()

    def crossings(self) -> Iterable[dict[str, Any]]:
        """Every choice of all other parts."""
        kinds = [kind for kind in PARTS if kind != self.kind]
        for names in product(*(available(kind) for kind in kinds)):
            yield {kind: small(kind, name) for kind, name in zip(kinds, names, strict=True)}

    def timings(self) -> list[dict[str, Any]]:
        """Every timing, or the one under test."""
        return [self.spec] if self.kind == "timing" else [small("timing", name) for name in available("timing")]


def small(kind: str, name: str) -> dict[str, Any]:
    """That part, with a short window if it has one."""
    return {"name": name, "window": WINDOW} if "window" in options(kind, name) else {"name": name}


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers that are the same every time."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def in_pieces(model: SequenceModel, x: Tensor, lengths: Iterable[int]) -> tuple[Tensor, State]:
    """The same text, handed over in pieces of these lengths."""
    state, answers, start = None, [], 0
    for length in lengths:
        answer, state = model(x[:, start : start + length], state)
        answers.append(answer)
        start += length
    assert state is not None and start == x.shape[1]
    return torch.cat(answers, 1), state


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in nested tuples, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for branch in tree for tensor in tensors(branch)] if isinstance(tree, tuple | list) else []


def same(what: str, one: Tensor, other: Tensor, tolerance: float = TOLERANCE) -> None:
    """A sentence unless they are equal up to rounding."""
    if one.shape != other.shape:
        raise Broken(f"{what}: the shapes are {tuple(one.shape)} and {tuple(other.shape)}.")
    off = (one - other).abs().max().item() if one.numel() else 0.0
    near = off <= tolerance * (1 + other.abs().max().item() if other.numel() else 1.0)
    if not near or not math.isfinite(off):
        raise Broken(f"{what}: off by {off:.1e}.")
