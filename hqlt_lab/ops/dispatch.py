"""Backend selection for the two memories, and `linear_scan`, which runs a linear rule on the selected backend.

    fast weights    fla          Triton kernels of flash-linear-attention, on a GPU
                    torch        our chunk-parallel scan, on every device
                    recurrent    one step at a time: the reference, slow
    softmax         flash_attn   the kernels of flash-attn, on a GPU
                    sdpa         torch's scaled_dot_product_attention: causal, folded blocks, or with a mask
                    flex         torch's flex_attention, compiled for the schedule, on a GPU
                    blocks       our bands and blocks, on every device
                    dense        one mask over all pairs of tokens: the reference, slow

All backends give the same result up to rounding; `hqlt check backends` verifies it.

Each backend reports why it cannot run an operation (`unsupported`), or why it should not (`discouraged`).  `auto`
selects the first backend without objections.  A backend requested by name runs everything it supports, and raises
otherwise.  If a GPU has to use a fallback, a warning has the reason and what to install.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError, did_you_mean, format_names, join_sentences
from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext
from hqlt_lab.ops.precision import is_forward_mode_ad
from hqlt_lab.ops.scan.chunked import chunked_scan
from hqlt_lab.ops.scan.recurrent import recurrent_scan


class BackendWarning(UserWarning):
    """A faster backend exists but cannot be used."""


class OpSpec(NamedTuple):
    """The properties of an operation that a backend may depend on."""

    device: str  # "cuda", "cpu", ...
    dtype: torch.dtype  # of the values, which is the precision the layer computes in
    key_dim: int  # channels of a key
    value_dim: int  # channels of a value
    is_masked: bool = False  # softmax: whether the mask hides more than the future
    has_past_keys: bool = False  # softmax: whether there are keys from before the first query
    needs_grad: bool = True
    has_decay: bool = False  # softmax: whether scores decay by the sum of log forget gates
    has_sinks: bool = False  # softmax: whether the first tokens of a document are visible beside the window
    limitation: str = ""  # what only a general implementation supports, such as "forward-mode differentiation is used"
    has_lookup: bool = True  # scan: whether the rule looks up what the memory holds


ReasonFunction = Callable[[OpSpec], str]  # returns a clause, or an empty string if there is no objection


def no_reason(spec: OpSpec) -> str:
    return ""


class Backend(NamedTuple):
    """One implementation: what it cannot run, and what it can run but should not."""

    unsupported: ReasonFunction = no_reason
    discouraged: ReasonFunction = no_reason
    is_fallback: bool = False  # runs everything on every device, and is not optimized for GPUs
    package: str = ""  # the package it requires
    install_command: str = ""


class BackendChoice(NamedTuple):
    """The selected backend and the reason for the selection."""

    name: str
    reason: str
    slow_reason: str = ""  # why it is slow and what to do about it, empty if it is not


def select_backend(backends: Mapping[str, Backend], requested: str, spec: OpSpec) -> BackendChoice:
    """Select the backend for an operation: the requested one, or with `auto` the first without objections."""
    if requested != "auto":
        return select_requested_backend(backends, requested, spec)
    rejections: dict[str, str] = {}
    for name, backend in backends.items():
        objection = unsupported_reason(backend, spec) or backend.discouraged(spec)
        if not objection:
            reason = "; ".join(f"not {rejected}: {why_not}" for rejected, why_not in rejections.items())
            is_slow = backend.is_fallback and spec.device == "cuda" and not spec.has_past_keys
            return BackendChoice(
                name,
                reason or ("the fastest backend for this operation"),
                suggest_remedy(backends, rejections) if is_slow else "",
            )
        rejections[name] = objection
    reasons = "; ".join(f"{name}: {reason}" for name, reason in rejections.items())
    raise ConfigError.at("ops", "no_backend", f"no backend supports this operation ({reasons}).")


def unsupported_reason(backend: Backend, spec: OpSpec) -> str:
    """Return why the backend cannot run the operation, or an empty string if it can."""
    return backend.unsupported(spec) or ("" if is_installed(backend.package) else missing_package_reason(backend))


def suggest_remedy(backends: Mapping[str, Backend], rejections: Mapping[str, str]) -> str:
    """Return why the faster backends were rejected on a GPU, with an install command if a package is missing."""
    reasons = "; ".join(f"{name}: {why_not}" for name, why_not in rejections.items())
    for name, why_not in rejections.items():
        if why_not == missing_package_reason(backends[name]):
            return f"{reasons}. Install it: {backends[name].install_command}"
    return f"{reasons}."


def select_requested_backend(backends: Mapping[str, Backend], requested: str, spec: OpSpec) -> BackendChoice:
    """Return the backend of that name.  Raise ConfigError if there is none or it cannot run the operation."""
    if requested not in backends:
        names = ["auto", *backends]
        hint = join_sentences(did_you_mean(requested, names), f"Backends: {format_names(names)}.")
        raise ConfigError.at("ops", "unknown_backend", f"there is no backend {requested!r}.", hint)
    if why_not := unsupported_reason(backends[requested], spec):
        is_missing = why_not == missing_package_reason(backends[requested])
        remedy = f"Install it: {backends[requested].install_command}" if is_missing else "Use auto, or another backend."
        raise ConfigError.at(
            "ops", "unsupported_backend", (f"{requested} does not support this operation: {why_not}."), remedy
        )
    return BackendChoice(requested, "requested")


def missing_package_reason(backend: Backend) -> str:
    return f"{backend.package} is not installed"


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it: flash-attn takes seconds, and may be broken."""
    if package and package not in _installed_packages:  # not functools.cache, which torch.compile cannot trace
        _installed_packages[package] = importlib.util.find_spec(package) is not None
    return not package or _installed_packages[package]


_installed_packages: dict[str, bool] = {}


def warn_if_slow(operation: str, choice: BackendChoice) -> BackendChoice:
    """Warn once per process if a GPU uses a slow backend.  Return the choice."""
    if choice.slow_reason and not torch.compiler.is_compiling() and (operation, choice) not in _warned:
        _warned.add((operation, choice))
        message = f"{operation}: using {choice.name} on this GPU, which is slow. {choice.slow_reason}"
        warnings.warn(message, BackendWarning, stacklevel=2)
    return choice


_warned: set[tuple[str, BackendChoice]] = set()


HALF_PRECISION_DTYPES = (torch.float16, torch.bfloat16)
NEEDS_GPU = "it needs a GPU"


def fla_unsupported_reason(spec: OpSpec) -> str:
    if spec.limitation:
        return spec.limitation
    if spec.device != "cuda" and not is_triton_interpreted():
        return NEEDS_GPU
    if spec.dtype not in (*HALF_PRECISION_DTYPES, torch.float32):
        return f"it does not support {dtype_name(spec.dtype)}"
    if spec.has_lookup and spec.key_dim > 256:
        return f"its kernels look up keys of at most 256 channels, not {spec.key_dim}"
    return ""


def fla_discouraged_reason(spec: OpSpec) -> str:
    if spec.device != "cuda":
        return "its kernels run in Triton's interpreter, for checks only"
    if spec.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "it rounds float32 matrix products to TF32"
    return ""


def flash_attn_unsupported_reason(spec: OpSpec) -> str:
    if spec.device != "cuda":
        return NEEDS_GPU
    if spec.limitation or spec.has_past_keys:
        return spec.limitation or "there are keys before the first query"
    if spec.has_decay:
        return "it computes in half precision, which cannot hold sums of log forget gates"
    if spec.has_sinks:
        return "it has no attention sinks"
    if spec.dtype not in HALF_PRECISION_DTYPES:
        return f"it supports bfloat16 and float16, not {dtype_name(spec.dtype)}"
    widest = max(spec.key_dim, spec.value_dim)
    return f"it supports heads of at most 256 channels, not {widest}" if widest > 256 else ""


def sdpa_discouraged_reason(spec: OpSpec) -> str:
    if spec.device != "cuda":
        return "blocks is at least as fast here"
    if spec.has_decay:
        return "with forget gates it computes in float32"
    return "with a mask it computes all pairs of tokens" if spec.is_masked else ""


def flex_unsupported_reason(spec: OpSpec) -> str:
    if spec.limitation:
        return spec.limitation
    if spec.device != "cuda":
        return "it has no backward pass on a CPU" if spec.needs_grad else ""
    if spec.dtype == torch.float64:
        return "its kernels do not support float64"
    return f"it supports heads of at least 16 channels, not {spec.key_dim}" if spec.key_dim < 16 else ""


def flex_discouraged_reason(spec: OpSpec) -> str:
    if spec.device != "cuda":
        return "it is not compiled here"
    return "decoding has few queries, and their number varies" if spec.has_past_keys else ""


SCAN_BACKENDS: Mapping[str, Backend] = {  # fastest first
    "fla": Backend(
        fla_unsupported_reason,
        fla_discouraged_reason,
        package="fla",
        install_command="pip install -c constraints.txt -e '.[gpu]'",
    ),
    "torch": Backend(is_fallback=True),
    "recurrent": Backend(is_fallback=True),
}
ATTENTION_BACKENDS: Mapping[str, Backend] = {
    "flash_attn": Backend(
        flash_attn_unsupported_reason,
        package="flash_attn",
        install_command="pip install --no-build-isolation -c constraints.txt -e '.[flash]'",
    ),
    "sdpa": Backend(discouraged=sdpa_discouraged_reason),
    "flex": Backend(flex_unsupported_reason, flex_discouraged_reason),
    "blocks": Backend(is_fallback=True),
    "dense": Backend(is_fallback=True),
}
REFERENCE_BACKENDS = ("recurrent", "dense")  # the others are compared with these


def is_triton_interpreted() -> bool:
    """Return whether Triton runs its kernels on CPU tensors, for checks."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def linear_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    context: ScanContext = DEFAULT_CONTEXT,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan a linear memory on the selected backend.

    The arguments and the result are those of `recurrent_scan` with its default step, `linear_step`.
    """
    spec = OpSpec(
        q.device.type,
        v.dtype,
        k.shape[3],
        v.shape[3],
        context.doc_start is not None,
        limitation=scan_limitation(),
        has_lookup=gates.has_lookup,
    )
    match warn_if_slow("fast weights", select_backend(SCAN_BACKENDS, backend, spec)).name:
        case "fla":
            from hqlt_lab.ops.scan.fla_scan import fla_scan

            return fla_scan(q, k, v, gates, state, context)
        case "recurrent":
            return recurrent_scan(q, k, v, gates, state, context)
        case _:
            return chunked_scan(q, k, v, gates, state, context)


def scan_limitation() -> str:
    """Return why only the step-by-step scan can be used, or an empty string."""
    return "forward-mode differentiation is used" if is_forward_mode_ad() else ""
