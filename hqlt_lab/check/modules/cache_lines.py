"""Cached decoding equals one pass, and the state keeps its size."""

import torch

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter_interface import Adapter, NotApplicable, count_state_bytes, slice_tokens
from hqlt_lab.check.modules.tensor_comparison import describe_deviation, largest_deviation, require_equal


def decoding_equals_one_pass(adapter: Adapter) -> str:
    """Token by token, from an empty cache and after a prompt, the outputs are those of one pass."""
    chunk = adapter.options.chunk
    return describe_deviation(max(compare_split(adapter, [1] * 12), compare_split(adapter, [chunk + 3] + [1] * 6)))


def continuing_equals_one_pass(adapter: Adapter) -> str:
    """Several tokens at once after a prompt have the outputs of one pass."""
    chunk = adapter.options.chunk
    return describe_deviation(max(compare_split(adapter, [chunk - 3, 5, chunk + 1]), compare_split(adapter, [2, 3])))


def compare_split(adapter: Adapter, lengths: list[int]) -> float:
    """Return the largest deviation of a split sequence from one pass; raise CheckFailed if it is too large."""
    adapter.require("cache")
    if adapter.options.multiple_of > 1:
        raise NotApplicable(f"the implementation needs lengths that are multiples of {adapter.options.multiple_of}")
    inputs = adapter.draw_inputs(2, sum(lengths))
    expected = adapter.compute(inputs).output
    outputs, cache, start = [], None, 0
    for length in lengths:
        result = adapter.compute(slice_tokens(inputs, start, start + length), cache=cache, keeps_cache=True)
        if result.cache is None:
            raise CheckFailed("no cache is returned.")
        outputs.append(result.output)
        cache, start = result.cache, start + length
        deviation = largest_deviation(torch.cat(outputs, 1), expected[:, :start])
        require_equal(
            f"in pieces of {describe_lengths(lengths)}, the outputs up to token {start - 1} differ", deviation
        )
    return deviation


def describe_lengths(lengths: list[int]) -> str:
    return ", ".join(map(str, lengths[:3])) + (", ..." if len(lengths) > 3 else "") + " tokens"


def state_does_not_grow(adapter: Adapter) -> str:
    """The state has the same bytes after any number of tokens."""
    sizes = {tokens: measure_state(adapter, tokens) for tokens in (8, adapter.options.chunk + 1, 200)}
    if len(set(sizes.values())) > 1:
        measured = ", ".join(f"{size} after {tokens} tokens" for tokens, size in sizes.items())
        raise CheckFailed(f"the bytes of the state of one row are {measured}.")
    return f"{sizes[8]} bytes per row in float32"


def state_has_the_declared_size(adapter: Adapter) -> str:
    """The state of one row in float32 has the declared number of bytes."""
    declared = adapter.declared_state_bytes(adapter.module(torch.float32))
    measured = measure_state(adapter, adapter.options.chunk + 1)
    if measured != declared:
        raise CheckFailed(f"{declared} bytes are declared, but {measured} were measured.")
    return f"{declared} bytes per row"


def measure_state(adapter: Adapter, tokens: int) -> int:
    """Return the bytes of the state of one row in float32 after a number of tokens."""
    adapter.require("cache")
    if adapter.options.cache_grows:
        raise NotApplicable("the cache is declared to grow with the tokens")
    inputs = adapter.draw_inputs(1, adapter.options.round_length(tokens))
    tensors = adapter.list_state_tensors(adapter.compute(inputs, torch.float32, keeps_cache=True).cache)
    if not tensors:
        raise NotApplicable("the cache has no tensors but the keys and values of attention")
    return count_state_bytes(tensors)
