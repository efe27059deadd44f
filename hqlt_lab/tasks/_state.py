"""The contract of a task that tracks a state: every prefix has an answer, and the last one counts.

The size of an example includes the answer, as in the paper; the model reads one token less, and the answer is due at
the last token that it reads.  `label: every` asks for it after every prefix that has one; `label: every_in_training`
teaches so and tests at the last token, which is learned many times faster and scored as in the paper.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from hqlt_lab.tasks._base import Batch, Split
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._generated import Generated

Label = Literal["last", "every", "every_in_training"]


@dataclass(frozen=True, kw_only=True)
class StateTask(Generated):
    """Gives `track` in place of `write`."""

    label: Label = "last"
    """Where an answer is due: at the last token; after every prefix that has one; or so in training alone."""

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        """Tokens, and the answer to the text up to each of them; -1 where it has none.  Both [B, width]."""
        raise NotImplementedError(f"{type(self).__name__} tracks nothing.")

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        return self.track(draws, sizes, width)

    def examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        """All that was tracked, or the last answer of each example alone."""
        batch = super().examples(split, seed, first, count)
        if self.label == "every" or (self.label == "every_in_training" and split == "train"):
            return batch
        last = torch.arange(batch.tokens.shape[1]) == batch.lengths[:, None] - self.unread - 1  # [B, T]
        return batch._replace(labels=batch.labels.where(last, -1))
