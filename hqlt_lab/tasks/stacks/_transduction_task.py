"""Base class of tasks that map a string to a string, which is read from marks behind the input.

    input ? ? ? ...        label at the i-th mark: the i-th symbol of the output

The marks carry no information, so the model has to store the whole input; earlier symbols of the output are not shown.
`sequence_accuracy` is the share of strings without a mistake.  Sizes in options count the symbols of the input, those
in metrics all tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import ExampleArrays, GeneratedTask

MARK = 1


@dataclass(frozen=True, kw_only=True)
class TransductionTask(GeneratedTask):
    """A task from string to string.  Subclasses define `write_output` and `output_size`."""

    has_sequence_accuracy = True
    unread_tokens = 0

    def output_size(self, size: Any) -> Any:
        """Return the number of marks behind an input of this size, an integer or an array."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `output_size`.")

    def write_output(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray]:
        """Return inputs [B, longest] of these sizes [B, 1], and outputs [B, marks], -1 where a mark has no label."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `write_output`.")

    def split_range(self, split: str, low: int, high: int) -> tuple[int, int]:
        return low + self.output_size(low), high + self.output_size(high)

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        symbols = rng.integers("symbols", low, high)
        sizes: IntArray = symbols + self.output_size(symbols)
        return sizes

    def generate_rows(self, split: Split, seed: int, numbers: IntArray, stream_suffix: str = "") -> ExampleArrays:
        rng, width = self._make_rng(split, seed, numbers, stream_suffix), self.sequence_length(split)
        low, high = self._requested_ranges()[split]
        sizes = rng.integers("symbols", low, high)  # [B, 1]
        inputs, outputs = self.write_output(rng, sizes, high)
        columns, num_marks = np.arange(width), self.output_size(sizes)
        is_input, lengths = columns < sizes, (sizes + num_marks)[:, 0]
        tokens = np.where(is_input, np.pad(inputs, ((0, 0), (0, width - high))), MARK)
        tokens = np.where(columns < lengths[:, None], tokens, 0)
        mark = np.clip(columns - sizes, 0, outputs.shape[1] - 1)  # number of the mark at each token
        is_mark = ~is_input & (columns < lengths[:, None])
        labels = np.where(is_mark, np.take_along_axis(outputs, mark, 1), -1)
        return self.select_labels(ExampleArrays(tokens, labels, lengths), split)
