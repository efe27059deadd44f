"""Compare every backend with the reference implementation, for every component and timing it supports.

`hqlt check backends` prints the result as a table.  A combination is one backend in one precision with one component
and one timing: an update rule for the backends of the fast weights; for those of softmax an attention component, with
and without sinks.

The reference is one layer in float64, with the fast weights computed one step at a time and softmax attention under one
dense mask.  The error of a combination is that of its worst tensor among outputs, states and gradients: the largest
deviation over the largest number.  The inputs are

    whole        a row of 67 tokens without a state: an odd length that crosses two chunks of 32
    documents    two documents in each row, with padding behind the last
    continued    documents as above, continued from a state after 9 tokens
    decoding     7 tokens from a state, without gradients, which may use other kernels

In addition, scan backends are compared in float32 where keeps are small: there the gradient of the log-keeps is a small
difference of large sums.  fla loses digits there, so its figures are reported, but no failure.

On a machine without a GPU fla's kernels run in Triton's interpreter, in a separate process, and flex is compared
without gradients, which torch does not support there.  The interpreter is slow, so float16 and the slowest kernels are
compared with one timing only.  It computes bfloat16 incorrectly.  Backends that need a GPU are reported as such;
`pytest -m gpu` compares them on a machine that has one.

    python -m hqlt_lab.check.backend_comparison        results of fla, a line of JSON each; needs TRITON_INTERPRET=1
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hqlt_lab.check.component_under_test import fixed_noise, flatten_tensors, small_spec
from hqlt_lab.check.triton_interpreter import enable_triton_interpreter
from hqlt_lab.components.attention._base import Attention
from hqlt_lab.components.update_rules._base import LinearRule, UpdateRule
from hqlt_lab.errors import ConfigError, HqltError, did_you_mean, format_names, join_sentences
from hqlt_lab.files import decode_json
from hqlt_lab.model.batch_layout import Layout, TokenPositions, compute_token_positions
from hqlt_lab.model.config import ModelConfig, OpsConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import MemoryState
from hqlt_lab.ops.dispatch import (
    ATTENTION_BACKENDS,
    REFERENCE_BACKENDS,
    SCAN_BACKENDS,
    OpSpec,
    dtype_name,
    is_installed,
    is_triton_interpreted,
    linear_scan,
    no_reason,
    unsupported_reason,
)
from hqlt_lab.ops.gates import Gates
from hqlt_lab.ops.scan.fla_kernels import make_kernel_inputs
from hqlt_lab.registry import available, build, options

REFERENCE_OPS = OpsConfig(scan="recurrent", attention="dense")
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
WIDTH, HEADS, SINKS = 32, 2, 2
INTERPRETED_TIMING = "synchronous"  # the one timing of comparisons that are slow in the interpreter
SLOW_INTERPRETED_KERNELS = ("kda", "gdn2", "dplr_delta_rule")  # several seconds per call
SMALL_LOG_KEEPS = (-5.0, -10.0)
PRECISIONS = {  # tested dtypes without a GPU and with one; backends not listed here are tested in float64
    "fla": ((torch.float32, torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)),
    "flash_attn": ((torch.bfloat16,), (torch.bfloat16, torch.float16)),
    "flex": ((torch.float64,), (torch.bfloat16, torch.float32)),
}


class BackendCase(NamedTuple):
    """Shape of the inputs of one comparison."""

    name: str
    rows: int
    length: int
    packed: bool = False
    has_past: bool = False
    with_gradients: bool = True


BACKEND_CASES = (
    BackendCase("whole", 1, 67),
    BackendCase("documents", 2, 67, packed=True),
    BackendCase("continued", 2, 67, packed=True, has_past=True),
    BackendCase("decoding", 2, 7, has_past=True, with_gradients=False),
)


class LayerComparison(NamedTuple):
    """One layer, computed by a backend on a device in a precision, to be compared with the reference."""

    update_rule: Any
    attention: Any
    timing: Any
    mixer: str  # fw_only or kv_only: one memory at a time
    ops: OpsConfig
    device: str
    dtype: torch.dtype

    def case_errors(self, cases: tuple[BackendCase, ...]) -> Iterator[tuple[BackendCase, float]]:
        """Yield each case with the relative error of the backend's worst tensor."""
        reference = self.build_layer()
        reference.set_backends(REFERENCE_OPS)
        layer = deepcopy(reference).to(self.device, torch.promote_types(torch.float32, self.dtype))
        layer.set_backends(self.ops)
        for case in cases:
            x, state, positions = make_inputs(case, reference)
            expected = run_layer(reference, x, state, positions, case.with_gradients)
            autocast = torch.autocast(self.device, self.dtype) if self.dtype.itemsize < 4 else nullcontext()
            with autocast:
                x, state, positions = move_like((x, state, positions), next(layer.parameters()))
                actual = run_layer(layer, x, state, positions, case.with_gradients)
            errors = [relative_error(a, b) for a, b in zip(actual, expected, strict=True)]
            yield case, torch.tensor(errors).max().item()  # unlike Python's max, torch's max propagates nan

    def build_layer(self) -> HybridMemory:
        components = {"update_rule": self.update_rule, "attention": self.attention, "timing": self.timing}
        components |= {"mixer": self.mixer, "positions": "rope"}
        config = ModelConfig(width=WIDTH, heads=HEADS, layers=1, init_std=0.5, **components)
        model = SequenceModel(config)
        initialize_parameters(model, config, 0)
        return model.double().memories[0]


def make_inputs(case: BackendCase, reference: HybridMemory) -> tuple[Tensor, MemoryState | None, TokenPositions]:
    """Return the inputs of a case: a sequence, the state it continues from, and the positions of its tokens."""
    state = None
    if case.has_past:
        with torch.no_grad():
            _, state = reference(fixed_noise(case.rows, 9, WIDTH, seed=1))
    x = fixed_noise(case.rows, case.length, WIDTH, seed=2)
    layout = None
    if case.packed:
        doc_start = torch.zeros(2, case.length, dtype=torch.bool)
        doc_start[0, 20] = doc_start[1, 41] = True
        doc_start[:, 0] = not case.has_past
        layout = Layout(torch.arange(case.length) < torch.tensor([[case.length], [case.length - 5]]), doc_start)
    return x, state, compute_token_positions(x, None if state is None else state.document_length, layout)


def move_like(tree: Any, like: Tensor) -> Any:
    """Move all tensors in nested tuples to the device of `like`, floating-point ones also to its dtype."""
    if isinstance(tree, Tensor):
        return tree.to(like.device, like.dtype if tree.is_floating_point() else tree.dtype)
    if isinstance(tree, tuple):
        branches = [move_like(branch, like) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def run_layer(
    layer: HybridMemory, x: Tensor, state: MemoryState | None, positions: TokenPositions, with_gradients: bool
) -> list[Tensor]:
    """Return the outputs and the fast weights, and the gradients of input, state and parameters if requested."""
    if not with_gradients:
        with torch.no_grad():
            y, new_state = layer(x, state, positions)
            return comparable_outputs(y, new_state, positions)
    inputs = [x, *([] if state is None or state.fw is None else [state.fw])]
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    if len(leaves) > 1 and state is not None:
        state = state._replace(fw=leaves[1])
    y, new_state = layer(leaves[0], state, positions)
    outputs = comparable_outputs(y, new_state, positions)
    loss = sum((output * fixed_noise(*output.shape, seed=3).to(output.device)).sum() for output in outputs)
    return [*outputs, *torch.autograd.grad(loss, [*leaves, *layer.parameters()], materialize_grads=True)]  # type: ignore[arg-type]


def comparable_outputs(y: Tensor, state: MemoryState, positions: TokenPositions) -> list[Tensor]:
    """Return the outputs, 0 at padding, and the fast weights, in float64."""
    if positions.row_length is not None:
        valid_mask = torch.arange(y.shape[1], device=y.device) < positions.row_length[:, None]
        y = y.masked_fill(~valid_mask[..., None], 0.0)
    return [tensor.double() for tensor in (y, *flatten_tensors((state.fw,) if state.fw is not None else ()))]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest deviation over the largest expected number."""
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    return ((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-9)).item()


@dataclass(frozen=True)
class BackendComparison:
    """Result of one combination of backend, precision, component and timing.

    A "reported" error has no tolerance.  `error` is None if nothing could be compared; `detail` then has the reason.
    """

    backend: str
    precision: str
    # an update rule, or an attention component with its number of sinks; for small keeps also the log-keep
    component: str
    timing: str
    outcome: Literal["passed", "failed", "unavailable", "reported"]
    error: float | None
    detail: str


def compare_backends(backend: str | None = None, device: str | None = None) -> Iterator[BackendComparison]:
    """Yield the comparisons of one backend, or of all, as they are computed."""
    names = [name for name in (*SCAN_BACKENDS, *ATTENTION_BACKENDS) if name not in REFERENCE_BACKENDS]
    if backend is not None and backend not in names:
        hint = join_sentences(did_you_mean(backend, names), f"Backends: {format_names(names)}.")
        raise ConfigError.at("backend", "unknown_backend", f"there is no backend {backend!r}.", hint)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name in [backend] if backend else names:
        if name == "fla" and device == "cpu" and is_installed("fla") and not is_triton_interpreted():
            yield from compare_in_interpreter()
        else:
            yield from compare_backend(name, device)


def compare_backend(backend: str, device: str) -> Iterator[BackendComparison]:
    """Yield the comparisons of one backend, computed in this process."""
    if backend == "fla" and device == "cpu" and is_triton_interpreted():
        enable_triton_interpreter()
    for dtype in PRECISIONS.get(backend, ((torch.float64,),) * 2)[device == "cuda"]:
        for component, sinks in list_variants(backend):
            for timing in available("timing"):
                if not sinks or "sinks" in options("timing", timing):
                    yield compare_cell(backend, dtype, component, timing, device, sinks)
    if backend in SCAN_BACKENDS and not unsupported_reason(
        SCAN_BACKENDS[backend], OpSpec(device, torch.float32, 16, 16)
    ):
        yield from compare_decay_gradients(backend, device)


def compare_decay_gradients(backend: str, device: str) -> Iterator[BackendComparison]:
    """Yield the errors of the gradient of log-keeps, in float32 and where keeps are small."""
    for rule, has_channels in (("gated_delta", False), ("kda", True)):
        for log_keep in SMALL_LOG_KEEPS:
            error = decay_gradient_error(backend, device, log_keep, has_channels)
            outcome: Literal["passed", "failed", "reported"] = "passed" if error <= 1e-5 else "failed"
            if backend == "fla":
                outcome = "reported"
            label = f"{rule}, gradient of log-keeps around {log_keep:g}"
            yield BackendComparison(backend, "float32", label, INTERPRETED_TIMING, outcome, error, "whole")


def decay_gradient_error(backend: str, device: str, log_keep: float, has_channels: bool) -> float:
    """Return the relative error of the gradient of log-keeps that are within 1% of `log_keep`."""
    noise = fixed_noise(1, 2, 40, 16 * 4 + 1, seed=4)
    q, k, v, variation = noise[..., :64].split(16, -1)
    log_keeps = log_keep * (1 + 0.01 * variation.tanh())
    beta = noise[..., 64].sigmoid()
    inputs = [normalize(q, dim=-1), normalize(k, dim=-1), v, log_keeps if has_channels else log_keeps[..., 0], beta]
    grads = []
    for name, dtype in (("recurrent", torch.float64), (backend, torch.float32)):
        q, k, v, log_keeps, beta = (x.float().to(device, dtype) for x in inputs)
        log_keeps.requires_grad_()
        reads, _ = linear_scan(q, k, v, Gates(log_keeps, beta, beta), backend=name)
        grads.append(torch.autograd.grad(reads.square().sum(), log_keeps)[0])
    return relative_error(grads[1], grads[0])


def list_variants(backend: str) -> list[tuple[str, int]]:
    """Return the components that a backend computes, each with a number of sinks."""
    if backend in SCAN_BACKENDS:
        return [(rule, 0) for rule in available("update_rule")]
    return [(attention, sinks) for attention in available("attention") for sinks in (0, SINKS)]


def compare_cell(
    backend: str, dtype: torch.dtype, component: str, timing: str, device: str, sinks: int = 0
) -> BackendComparison:
    """Compare one combination: report its worst case, or the first case beyond the tolerance of its precision."""
    label = f"{component}, {sinks} sinks" if sinks else component
    head_size, cell = WIDTH // HEADS, (backend, dtype_name(dtype), label, timing)
    spec = OpSpec(device, dtype, head_size, head_size, needs_grad=not lacks_backward(backend, device))
    reason = skip_reason(backend, component, spec._replace(has_sinks=sinks > 0))
    if reason := reason or interpreter_skip_reason(backend, component, timing, spec):
        return BackendComparison(*cell, "unavailable", None, reason)
    timing_spec = small_spec("timing", timing, {"sinks": sinks} if sinks else None)
    if backend in SCAN_BACKENDS:
        ops = OpsConfig(scan=backend)  # type: ignore[arg-type]
        comparison = LayerComparison(component, "softmax", timing_spec, "fw_only", ops, device, dtype)
    else:
        ops = OpsConfig(attention=backend)  # type: ignore[arg-type]
        attention = small_spec("attention", component)
        comparison = LayerComparison("delta", attention, timing_spec, "kv_only", ops, device, dtype)
    worst_error, worst_case = 0.0, ""
    try:
        for case, error in comparison.case_errors(selected_cases(backend, spec)):
            if not error <= TOLERANCES[dtype]:  # true for nan as well
                return BackendComparison(*cell, "failed", error, case.name)
            worst_error, worst_case = max((worst_error, worst_case), (error, case.name))
    except HqltError as refusal:
        return BackendComparison(*cell, "failed", None, str(refusal))
    detail = "without gradients" if lacks_backward(backend, device) else worst_case
    return BackendComparison(*cell, "passed", worst_error, detail)


def interpreter_skip_reason(backend: str, rule: str, timing: str, spec: OpSpec) -> str:
    """Return why fla does not compute a combination in Triton's interpreter, or "" if it does."""
    if backend != "fla" or spec.device == "cuda":
        return ""
    if spec.dtype == torch.bfloat16:
        return "the interpreter computes bfloat16 incorrectly"
    if timing == INTERPRETED_TIMING:
        return ""
    if spec.dtype == torch.float16:
        return f"only with {INTERPRETED_TIMING} in the interpreter"
    update_rule = build_update_rule(rule)
    assert isinstance(update_rule, LinearRule)  # others do not use fla
    with torch.no_grad():
        gates = update_rule.gates(torch.zeros(1, 1, WIDTH))
        inputs = update_rule.example_scan_inputs(gates, spec.key_dim, spec.value_dim)
    is_slow = make_kernel_inputs(*inputs).kernel in SLOW_INTERPRETED_KERNELS
    return f"only with {INTERPRETED_TIMING} in the interpreter" if is_slow else ""


def build_update_rule(rule: str) -> UpdateRule:
    update_rule: UpdateRule = build("update_rule", small_spec("update_rule", rule), width=WIDTH, heads=HEADS)
    return update_rule


def skip_reason(backend: str, component: str, spec: OpSpec) -> str:
    """Return why a backend does not compute a component on this machine, or "" if it does."""
    if backend in ATTENTION_BACKENDS:
        attention: Attention = build("attention", small_spec("attention", component), width=WIDTH, heads=HEADS)
        with torch.no_grad():
            has_decay = attention.log_forget(torch.zeros(1, 1, WIDTH)) is not None
        return unsupported_reason(ATTENTION_BACKENDS[backend], spec._replace(has_decay=has_decay))
    update_rule = build_update_rule(component)
    with torch.no_grad():
        gates = update_rule.gates(torch.zeros(1, 1, WIDTH))
    update_rule.backend = backend
    try:
        choice = update_rule.backend_choice(gates, spec)
    except ConfigError:
        return unsupported_reason(SCAN_BACKENDS[backend], spec) or "it does not support this rule"
    return "" if choice.name == backend else choice.reason


def selected_cases(backend: str, spec: OpSpec) -> tuple[BackendCase, ...]:
    """Return the cases that a backend supports, without those that others cover.

    "continued" covers "documents".  In the interpreter, float16 is compared on "whole" and "decoding" only: states are
    float32 in any precision.
    """
    unsupported = ATTENTION_BACKENDS[backend].unsupported if backend in ATTENTION_BACKENDS else no_reason
    supported = [case for case in BACKEND_CASES if not unsupported(spec._replace(has_past_keys=case.has_past))]
    names = {case.name for case in supported}
    covered = {"documents"} if "continued" in names else set()
    if backend == "fla" and spec.device == "cpu" and spec.dtype == torch.float16:
        covered |= {"continued"}
    selected = [case for case in supported if case.name not in covered]
    return tuple(case._replace(with_gradients=case.with_gradients and spec.needs_grad) for case in selected)


def lacks_backward(backend: str, device: str) -> bool:
    """Return whether the backend has no backward pass on this device."""
    return backend == "flex" and device == "cpu"


def compare_in_interpreter() -> Iterator[BackendComparison]:
    """Yield the cells of fla without a GPU, from a new process: Triton reads TRITON_INTERPRET when it is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hqlt_lab.check.backend_comparison"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                comparison = BackendComparison(**decode_json(line, dict, allow_nan=True))
            except (ValueError, TypeError) as error:
                raise HqltError(f"Triton's interpreter printed {line[:200]!r} instead of a comparison.") from error
            yield comparison
    if process.returncode:
        raise HqltError(f"fla's kernels could not be run in Triton's interpreter (exit code {process.returncode}).")


if __name__ == "__main__":
    for comparison in compare_backend("fla", "cpu"):
        print(json.dumps(asdict(comparison)), flush=True)
