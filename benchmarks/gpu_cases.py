"""Cases that `gpu.py` measures; a case is prepared for a machine, which gives a function to be timed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.model.config import OpsConfig


class Scale(NamedTuple):
    """Sizes of a model, and of the batches that it reads."""

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
    """Device, precision and backends of a measurement."""

    device: str
    dtype: torch.dtype
    ops: OpsConfig = OpsConfig()
    compile: bool = False

    @property
    def chip(self) -> str:
        return torch.cuda.get_device_name() if self.device == "cuda" else "no GPU"


GPU = Machine("cuda", torch.bfloat16)
# the interpreter multiplies bfloat16 incorrectly in some cases, and fla's delta rule does not support float32
NO_GPU = Machine("cpu", torch.float16)


class PreparedCase(NamedTuple):
    """The function that is timed, with details for its row of the table."""

    run: Callable[[], Tensor]
    details: dict[str, Any]
    tokens: int


class Case(NamedTuple):
    """One line of the table."""

    kind: str  # "model" or "kernel"
    size: str
    name: str
    uses_triton: bool  # whether it may run Triton kernels
    make: Callable[[Machine, int], PreparedCase]  # arguments: machine, rows of a batch


# tokens per second on 4 H100 in the paper; for 340M computed from its rounded hours: 15 billion tokens in 8 and 10
PAPER = {"1.3b": {"HQLT": 148e3, "DeltaNet": 170e3, "Transformer++": 170e3}}
PAPER["340m"] = {"HQLT": 418e3, "DeltaNet": 418e3, "Transformer++": 522e3}


def paper_tokens_per_second(case: Case) -> float | None:
    """Return the tokens per second of one of the paper's four H100, or None if the paper does not report them."""
    for name, speed in PAPER.get(case.size, {}).items():
        if case.kind == "model" and case.name.startswith(name):
            return speed / 4
    return None
