"""Documents that are packed into a row are independent."""

from itertools import accumulate, pairwise

from hqlt_lab.check.modules.adapter_interface import Adapter, slice_tokens
from hqlt_lab.check.modules.tensor_comparison import describe_deviation, largest_deviation, require_equal


def packed_documents_are_independent(adapter: Adapter) -> str:
    """Documents packed into a row, shorter and longer than a chunk, have the outputs that they have alone."""
    adapter.require("documents")
    lengths = [5, adapter.options.chunk + 9, 1, 12]
    inputs = adapter.draw_inputs(1, sum(lengths))
    output = adapter.compute(inputs, document_lengths=lengths).output
    largest = 0.0
    for start, stop in pairwise(accumulate(lengths, initial=0)):
        expected = adapter.compute(slice_tokens(inputs, start, stop)).output
        deviation = largest_deviation(output[:, start:stop], expected)
        require_equal(f"the document of tokens {start} to {stop - 1} differs from the document alone", deviation)
        largest = max(largest, deviation)
    return describe_deviation(largest)
