"""Base class of tasks whose answer is a string: a question of several tokens, and then the answer, letter by letter.

    tokens    question answer                the label of each letter is at the token before it
    labels             letters and an end

The model reads the letters before the one that it predicts (teacher forcing); `sequence_accuracy` is the share of
strings without a mistake.  Sizes in options count the letters of the string in the question, those in metrics all input
tokens.

`packed: 220` fills training rows of 220 tokens with examples, without resets between them; the last one is cut and has
no labels.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import ExampleArrays, GeneratedTask


class Strings(NamedTuple):
    """Questions and answers of several examples; tokens behind the end of one may be anything."""

    questions: IntArray  # [B, Q]
    question_lengths: IntArray  # [B]
    answers: IntArray  # [B, A]
    answer_lengths: IntArray  # [B]


@dataclass(frozen=True, kw_only=True)
class StringTask(GeneratedTask):
    """A task whose answer is a string.  Subclasses define `write_strings` and `row_sizes`."""

    packed: int | None = None
    """Tokens of training rows that hold several examples; null: each row has one."""

    has_sequence_accuracy = True
    unread_tokens = 0

    def write_strings(self, rng: CounterRng, sizes: IntArray, longest: int) -> Strings:
        """Return questions and answers of these sizes [B], of which none is above `longest`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `write_strings`.")

    def row_sizes(self, size: int) -> tuple[int, int]:
        """Return the smallest and the largest number of tokens of questions and answers of this size."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `row_sizes`.")

    def split_range(self, split: str, low: int, high: int) -> tuple[int, int]:
        if split == "train" and self.packed:
            return self.packed, self.packed
        return self.row_sizes(low)[0] - 1, self.row_sizes(high)[1] - 1

    def count_inputs(self, size: int) -> int | None:
        return None

    def generate_rows(self, split: Split, seed: int, numbers: IntArray, stream_suffix: str = "") -> ExampleArrays:
        width = self.sequence_length(split)
        row, is_answer = np.zeros((2, len(numbers), width + 1), dtype=np.int64)
        start, examples = np.zeros(len(numbers), dtype=np.int64), 1
        if split == "train" and self.packed:
            examples = 1 + width // self.row_sizes(self.train_length[0])[0]
        low, high = self._requested_ranges()[split]
        for index in range(examples):
            rng = self._make_rng(split, seed, numbers, stream_suffix + (f"/example_{index}" if index else ""))
            strings = self.write_strings(rng, rng.integers("size", low, high)[:, 0], high)
            start = write_example(row, is_answer, start, strings)
        lengths = np.minimum(start - 1, width)
        valid_mask = np.arange(width) < lengths[:, None]
        tokens = np.where(valid_mask, row[:, :-1], 0)
        labels = np.where(valid_mask & (is_answer[:, 1:] > 0), row[:, 1:], -1)
        return self.select_labels(ExampleArrays(tokens, labels, lengths), split)


def write_example(row: IntArray, is_answer: IntArray, start: IntArray, strings: Strings) -> IntArray:
    """Write one example per row from `start` on, cut at the end of the row.  Return the positions behind them."""
    rows, width = np.arange(len(row))[:, None], row.shape[1]
    end_of_question = start + strings.question_lengths
    end = end_of_question + strings.answer_lengths
    pieces = ((strings.questions, start, end_of_question), (strings.answers, end_of_question, end))
    for is_last, (piece, first, last) in enumerate(pieces):
        columns = first[:, None] + np.arange(piece.shape[1])
        is_inside = (columns < last[:, None]) & (columns < width)
        row[np.broadcast_to(rows, columns.shape)[is_inside], columns[is_inside]] = piece[is_inside]
        is_whole = is_inside & (end <= width)[:, None]
        is_answer[np.broadcast_to(rows, columns.shape)[is_whole], columns[is_whole]] = is_last
    return end
