"""Run fla's Triton kernels, forward and backward, on CPU tensors through Triton's interpreter.

Triton 3.9 interprets kernels if TRITON_INTERPRET is 1 when it is first imported.  Four things keep fla's kernels from
running there, and `enable_triton_interpreter` works around them:

    autotuning      benchmarks on a device; the first configuration of each kernel is used instead
    loop variables  are plain numbers in the interpreter, but fla converts them with `.to`
    gather          is bound before the interpreter replaces it; a function that looks it up later is used instead
    bfloat16        is multiplied as the integers it is stored in; operands are converted to float32 instead

bfloat16 is nevertheless computed incorrectly by some kernels: sums over bfloat16 channels, as in the decay gradients of
kda and comba, are sums of the stored integers.  Only float32 and float16 are compared in the interpreter.

For checks only: a call takes a second, that of the kda and gdn2 kernels several.  `avoid_repeated_patching` saves a
third of it: the interpreter replaces all functions of triton.language again at every call inside a kernel.
"""

import builtins
import inspect
import os
import sys
import types
import warnings
from functools import cache
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.scan.fla_kernels import KERNEL_NAMES, load_kernel


def enable_triton_interpreter() -> None:
    """Make this process run fla's kernels on CPU tensors; call again after more modules of fla were imported.

    TRITON_INTERPRET=1 must be in its environment.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        message = "Triton's interpreter needs TRITON_INTERPRET=1, set before Triton is imported."
        raise ConfigError.at("TRITON_INTERPRET", "interpreter_not_enabled", message)
    skip_autotuning()
    patch_bfloat16_dot()
    avoid_repeated_patching()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fla warns that there is no GPU
        for name in KERNEL_NAMES:
            load_kernel(name, recurrent=False)
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.") and isinstance(module, types.ModuleType):
            module.range = interpreter_range  # type: ignore[attr-defined]
            if hasattr(module, "gather"):
                module.gather = interpreter_gather  # type: ignore[attr-defined]


@cache
def skip_autotuning() -> None:
    from triton.runtime.autotuner import Autotuner

    original_init = Autotuner.__init__

    def init_with_first_config(self: Any, function: Any, names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, function, names, configs[:1], *args, **kwargs)

    Autotuner.__init__ = init_with_first_config


class LoopCounter(int):
    """A loop variable with the method `to` that fla's kernels call."""

    def to(self, *_: Any, **__: Any) -> "LoopCounter":
        return self


def interpreter_range(*limits: Any) -> list[LoopCounter]:
    """Replace `range`; the limits may be tensors of the interpreter."""
    return [LoopCounter(number) for number in builtins.range(*map(to_int, limits))]


def interpreter_gather(source: Any, index: Any, axis: int) -> Any:
    """Replace `triton.language.gather`; the interpreter sets it for the duration of a kernel."""
    import triton.language as tl

    return tl.gather(source, index, axis)


def to_int(number: Any) -> int:
    data = getattr(getattr(number, "handle", number), "data", None)
    return int(number) if data is None else int(data.item())


@cache
def patch_bfloat16_dot() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    np.seterr(invalid="ignore", over="ignore")  # masked lanes may hold any value
    original_create_dot = InterpreterBuilder.create_dot

    def as_float32(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        return original_create_dot(self, as_float32(a), as_float32(b), *args, **kwargs)

    InterpreterBuilder.create_dot = create_dot


@cache
def avoid_repeated_patching() -> None:
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    original_patch_builtin = interpreter._patch_builtin

    @cache
    def first_builtin(package: Any) -> str:
        return next(name for name, member in inspect.getmembers(package) if is_builtin(member))

    def patch_builtin_once(package: Any, builder: Any, scope: Any) -> None:
        if is_builtin(getattr(package, first_builtin(package))):  # replaced functions are not built in
            original_patch_builtin(package, builder, scope)

    interpreter._patch_builtin = patch_builtin_once
