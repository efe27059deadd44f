"""What `gpu.py` measures: a case is made on a machine, and is then a function to be timed and what is known of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.model.config import OpsConfig


class Scale(NamedTuple):
    """How large models are, and what they read."""

    width: int
    heads: int
    layers: int
    vocabulary: int
    length: int
    rows: int


SCALES = {
    "340m": Scale(1024, 8, 24, 32000, 2048, 16),
    "1.3b": Scale(2048, 16, 24, 32000, 2240, 16),
    "tiny": Scale(64, 2, 1, 64, 72, 1),  # for Triton's interpreter; fla scans up to 64 tokens step by step
}


class Machine(NamedTuple):
    """Where and in what precision to compute, and by what."""

    device: str
    dtype: torch.dtype
    ops: OpsConfig = OpsConfig()
    compile: bool = False

    @property
    def chip(self) -> str:
        return torch.cuda.get_device_name() if self.device == "cuda" else "no GPU"


GPU = Machine("cuda", torch.bfloat16)
# the interpreter's bfloat16 products are wrong in places, and fla's delta rule takes no float32
NO_GPU = Machine("cpu", torch.float16)


class Made(NamedTuple):
    """What is timed, and what is known of it."""

    run: Callable[[], Tensor]
    told: dict[str, Any]
    tokens: int


class Case(NamedTuple):
    """One line of the table."""

    kind: str  # "model" or "kernel"
    size: str
    name: str
    triton: bool  # whether it may run Triton's kernels
    make: Callable[[Machine, int], Made]  # the second: rows of a batch


# tokens per second on 4 H100 in the paper; at 340M those are its rounded hours: 15 billion tokens in 8 and 10
PAPER = {"1.3b": {"HQLT": 148e3, "DeltaNet": 170e3, "Transformer++": 170e3}}
PAPER["340m"] = {"HQLT": 418e3, "DeltaNet": 418e3, "Transformer++": 522e3}


def in_the_paper(case: Case) -> float | None:
    """Tokens per second of one of its four H100, where it tells them."""
    for name, speed in PAPER.get(case.size, {}).items():
        if case.kind == "model" and case.name.startswith(name):
            return speed / 4
    return None
