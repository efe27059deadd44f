"""Later tokens change nothing before them: no bit where the implementation keeps the order of its arithmetic.

In exact arithmetic a leak and a rounding error differ, but a tolerance cannot tell a small leak from rounding.  With
inputs of one shape every matrix product is computed in the same order, so a causal implementation gives equal bits.
Appended tokens change the shapes, and libraries choose another order of summation for other shapes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter_interface import (
    Adapter,
    Inputs,
    NotApplicable,
    convert_inputs,
    join_tokens,
    slice_tokens,
)
from hqlt_lab.check.modules.tensor_comparison import (
    CAUSALITY_TOLERANCES,
    dtype_name,
    largest_deviation,
    require_equal,
)


def later_tokens_change_nothing(adapter: Adapter) -> str:
    """Changing tokens changes no earlier output, over several chunks."""
    deviations: dict[torch.dtype, float] = {}
    for dtype in CAUSALITY_TOLERANCES:
        inputs, positions = draw_long_inputs(adapter)
        try:
            expected = adapter.compute(inputs, dtype).output
        except (RuntimeError, NotImplementedError, AssertionError):
            if dtype == torch.float32:
                raise
            continue  # the dtype is not supported, which another line reports
        if not torch.equal(adapter.compute(inputs, dtype).output, expected):
            raise CheckFailed(f"two runs with equal inputs give different outputs in {dtype_name(dtype)}.")
        deviations[dtype] = 0.0
        for t in positions:
            output = adapter.compute(change_tokens(adapter, inputs, t), dtype).output
            deviation = largest_deviation(output[:, :t], expected[:, :t])
            tolerance = 0.0 if adapter.options.bitwise else CAUSALITY_TOLERANCES[dtype]
            require_equal(f"in {dtype_name(dtype)}, tokens from {t} on change the outputs before", deviation, tolerance)
            deviations[dtype] = max(deviations[dtype], deviation)
    return describe_deviations(deviations)


def appended_tokens_change_nothing(adapter: Adapter) -> str:
    """A sequence gives the same outputs with and without the tokens after it."""
    inputs, positions = draw_long_inputs(adapter)
    expected = adapter.compute(inputs).output
    tolerance, largest = CAUSALITY_TOLERANCES[adapter.value_dtype], 0.0
    for t in positions:
        length = adapter.options.round_length(t)
        deviation = largest_deviation(adapter.compute(slice_tokens(inputs, 0, length)).output, expected[:, :length])
        require_equal(f"tokens after the first {length} change their outputs", deviation, tolerance)
        largest = max(largest, deviation)
    return describe_deviations({adapter.value_dtype: largest})


def later_tokens_get_no_gradient(adapter: Adapter) -> str:
    """The gradient of earlier outputs with respect to later inputs is 0."""
    inputs, positions = draw_long_inputs(adapter)
    output, leaves = run_with_leaves(adapter, convert_inputs(inputs, adapter.value_dtype))
    largest = 0.0
    for t in positions[1::2]:
        gradients = torch.autograd.grad(output[:, :t].square().sum(), list(leaves.values()), retain_graph=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            deviation = (gradient[:, t:].abs().max() / gradient.abs().max().clamp(min=1e-30)).item()
            tolerance = 0.0 if adapter.options.bitwise else CAUSALITY_TOLERANCES[adapter.value_dtype]
            require_equal(
                f"outputs before token {t} have a gradient with respect to later {name}", deviation, tolerance
            )
            largest = max(largest, deviation)
    return describe_deviations({adapter.value_dtype: largest})


def run_with_leaves(adapter: Adapter, inputs: Inputs) -> tuple[Tensor, Inputs]:
    """Return the output, and the inputs with respect to which it has gradients; embeddings for token numbers."""
    module = adapter.module()
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items() if tensor.is_floating_point()}
    if leaves:
        return adapter.run(module, inputs).output, leaves
    embedding = next((layer for layer in module.modules() if isinstance(layer, nn.Embedding)), None) if module else None
    if embedding is None:
        raise NotApplicable("the inputs are token numbers, and the target has no nn.Embedding")

    def keep_embeddings(layer: nn.Module, arguments: Any, embeddings: Tensor) -> Tensor:
        leaves["token embeddings"] = embeddings.detach().requires_grad_()
        return leaves["token embeddings"]

    hook = embedding.register_forward_hook(keep_embeddings)
    try:
        return adapter.run(module, inputs).output, leaves
    finally:
        hook.remove()


def draw_long_inputs(adapter: Adapter) -> tuple[Inputs, list[int]]:
    """Return inputs of several chunks, and positions near their borders and in their middle."""
    chunk = adapter.options.chunk
    length = adapter.options.round_length(3 * chunk + 5)
    positions = {1, chunk - 1, chunk, chunk + min(5, chunk - 1), 2 * chunk + chunk // 2 + 1, length - 1}
    return adapter.draw_inputs(2, length), sorted(position for position in positions if 0 < position < length)


def change_tokens(adapter: Adapter, inputs: Inputs, start: int) -> Inputs:
    """Return the inputs with other tokens from a position on."""
    length = next(iter(inputs.values())).shape[1]
    return join_tokens(slice_tokens(inputs, 0, start), slice_tokens(adapter.draw_inputs(2, length, seed=start), start))


def describe_deviations(deviations: dict[torch.dtype, float]) -> str:
    """Return in which dtypes the outputs are equal in every bit, and the deviations in the others."""
    exact = ", ".join(dtype_name(dtype) for dtype, deviation in deviations.items() if not deviation)
    others = ", ".join(
        f"{deviation:.0e} in {dtype_name(dtype)} (tolerance {CAUSALITY_TOLERANCES[dtype]:.0e})"
        for dtype, deviation in deviations.items()
        if deviation
    )
    return "; ".join(filter(None, [exact and f"every bit in {exact}", others and f"largest deviation {others}"]))
