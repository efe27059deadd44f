"""fla's real Triton kernels on CPU tensors: forward and backward, through Triton's interpreter.

Triton 3.9 interprets kernels where TRITON_INTERPRET is 1 when it is first imported.  Three things keep fla's from
running there, and `interpret` mends them:

    autotuning      measures on a device; the first configuration of each kernel is taken instead
    loop variables  are plain numbers here, and fla converts them with `.to`
    bfloat16        is multiplied as the integers it is stored in; products are made of float32 instead

For checks: a call takes about a second.
"""

import builtins
import importlib
import os
import sys
import types
import warnings
from functools import cache
from typing import Any

from hqlt_lab.errors import ConfigError

KERNELS = ("fla.ops.simple_gla", "fla.ops.delta_rule", "fla.ops.gated_delta_rule")


def interpret() -> None:
    """Make this process run fla's kernels on CPU tensors; once more after more of fla was imported.

    TRITON_INTERPRET=1 must be in its environment.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise ConfigError("Triton's interpreter runs where TRITON_INTERPRET=1 was set before Triton was loaded.")
    take_first_configurations()
    multiply_bfloat16()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fla says that there is no GPU
        for name in KERNELS:
            importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.") and isinstance(module, types.ModuleType):
            module.range = counted  # type: ignore[attr-defined]


@cache
def take_first_configurations() -> None:
    from triton.runtime.autotuner import Autotuner

    make = Autotuner.__init__

    def made(self: Any, function: Any, names: Any, configurations: Any, *rest: Any, **more: Any) -> None:
        make(self, function, names, configurations[:1], *rest, **more)

    Autotuner.__init__ = made


class Counter(int):
    """A loop variable."""

    def to(self, *_: Any, **__: Any) -> "Counter":
        return self


def counted(*limits: Any) -> list[Counter]:
    """`range`, with limits that may be the interpreter's tensors."""
    return [Counter(number) for number in builtins.range(*map(plain, limits))]


def plain(number: Any) -> int:
    data = getattr(getattr(number, "handle", number), "data", None)
    return int(number) if data is None else int(data.item())


@cache
def multiply_bfloat16() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    np.seterr(invalid="ignore", over="ignore")  # of lanes that are masked later, which may hold anything
    multiply = InterpreterBuilder.create_dot

    def as_float32(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any, **more: Any) -> Any:
        return multiply(self, as_float32(a), as_float32(b), *rest, **more)

    InterpreterBuilder.create_dot = create_dot
