"""Padding changes neither the outputs of the tokens nor the state after them."""

import torch
from torch import Tensor

from hqlt_lab.check.modules.adapter_interface import Adapter, Inputs, slice_rows, slice_tokens
from hqlt_lab.check.modules.tensor_comparison import describe_deviation, largest_deviation, require_equal


def padding_on_the_right_has_no_effect(adapter: Adapter) -> str:
    """Rows with padding behind them have the outputs that they have alone."""
    return describe_deviation(compare_padded_rows(adapter, pads_left=False))


def padding_on_the_left_has_no_effect(adapter: Adapter) -> str:
    """Rows with padding in front of them have the outputs that they have alone."""
    return describe_deviation(compare_padded_rows(adapter, pads_left=True))


def padding_leaves_the_state(adapter: Adapter) -> str:
    """After prompts of different lengths in one batch, decoding from the cache continues each as alone."""
    adapter.require("mask")
    adapter.require("cache")
    tokens, later_tokens = padded_length(adapter), adapter.options.round_length(4)
    inputs, later_inputs = adapter.draw_inputs(3, tokens), adapter.draw_inputs(3, later_tokens, seed=1)
    lengths = row_lengths(tokens)
    mask = make_mask(lengths, tokens, adapter.pads_prompts_left)
    cache = adapter.compute(inputs, keeps_cache=True, mask=mask).cache
    output = adapter.compute(later_inputs, cache=cache, mask=torch.ones(3, later_tokens, dtype=torch.bool)).output
    largest = 0.0
    for row, length in enumerate(lengths):
        start = tokens - length if adapter.pads_prompts_left else 0
        alone = adapter.compute(slice_row(inputs, row, start, start + length), keeps_cache=True)
        expected = adapter.compute(slice_row(later_inputs, row), cache=alone.cache).output
        deviation = largest_deviation(output[row : row + 1], expected)
        require_equal(f"after a prompt with {tokens - length} padded tokens, the next outputs differ", deviation)
        largest = max(largest, deviation)
    return f"prompts padded on the {'left' if adapter.pads_prompts_left else 'right'}, {describe_deviation(largest)}"


def compare_padded_rows(adapter: Adapter, pads_left: bool) -> float:
    """Return the largest deviation of padded rows from the rows alone; raise CheckFailed if it is too large."""
    adapter.require("mask")
    tokens = padded_length(adapter)
    inputs, lengths = adapter.draw_inputs(3, tokens), row_lengths(tokens)
    output = adapter.compute(inputs, mask=make_mask(lengths, tokens, pads_left)).output
    largest = 0.0
    for row, length in enumerate(lengths):
        start = tokens - length if pads_left else 0
        expected = adapter.compute(slice_row(inputs, row, start, start + length)).output
        deviation = largest_deviation(output[row : row + 1, start : start + length], expected)
        require_equal(f"with {tokens - length} padded tokens the outputs differ", deviation)
        largest = max(largest, deviation)
    return largest


def padded_length(adapter: Adapter) -> int:
    return adapter.options.round_length(adapter.options.chunk + 9)


def row_lengths(tokens: int) -> list[int]:
    """Return a full row, a row with little padding and a row that is mostly padding."""
    return [tokens, tokens - 3, 6]


def make_mask(lengths: list[int], tokens: int, pads_left: bool) -> Tensor:
    """Return a mask [B, T], True at the tokens that are not padding."""
    position, limits = torch.arange(tokens), torch.tensor(lengths)[:, None]
    return position >= tokens - limits if pads_left else position < limits


def slice_row(inputs: Inputs, row: int, start: int = 0, stop: int | None = None) -> Inputs:
    return slice_tokens(slice_rows(inputs, row, row + 1), start, stop)
