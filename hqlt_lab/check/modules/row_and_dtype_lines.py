"""Rows of a batch are independent, and the dtype of the input is kept."""

import torch

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter_interface import Adapter, slice_rows
from hqlt_lab.check.modules.tensor_comparison import (
    DTYPE_TOLERANCES,
    describe_deviation,
    dtype_name,
    largest_deviation,
    require_equal,
)


def rows_are_independent(adapter: Adapter) -> str:
    """A row has the same output in a batch and alone, whatever the other rows are."""
    inputs = adapter.draw_inputs(3, adapter.options.round_length(adapter.options.chunk + 9))
    output = adapter.compute(inputs).output
    largest = 0.0
    for row in range(3):
        expected = adapter.compute(slice_rows(inputs, row, row + 1)).output
        deviation = largest_deviation(output[row : row + 1], expected)
        require_equal(f"row {row} of the batch differs from the row alone", deviation)
        largest = max(largest, deviation)
    return describe_deviation(largest)


def dtype_is_kept(adapter: Adapter) -> str:
    """The output has the dtype of the input, is finite, and is near the output in float64."""
    inputs = adapter.draw_inputs(2, adapter.options.round_length(40))
    expected = adapter.compute(inputs, torch.float32).output
    notes = []
    for dtype, tolerance in DTYPE_TOLERANCES.items():
        output = adapter.compute(inputs, dtype).output
        is_accepted = adapter.logits_may_be_float32 and output.dtype == torch.float32
        if output.dtype != dtype and not is_accepted:
            raise CheckFailed(f"the output for {dtype_name(dtype)} is {dtype_name(output.dtype)}.")
        if not output.isfinite().all():
            raise CheckFailed(f"the output in {dtype_name(dtype)} is not finite.")
        deviation = largest_deviation(output, expected)
        require_equal(f"the output in {dtype_name(dtype)} differs from that in float32", deviation, tolerance)
        if output.dtype != dtype:
            notes.append(dtype_name(dtype))
    return f"logits are float32 for {', '.join(notes)}" if notes else "float64, float32, bfloat16, float16"
