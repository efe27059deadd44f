"""Tasks whose examples are made by a counter, as many as anybody wants, with answers that are right or wrong.

    train   what is learned; other examples for every run seed
    short   as long as in training   }
    valid   what is selected on      }  fixed sets of `eval_size` sequences that depend on `data_seed` alone:
    test    what is reported         }  the same for every arm and every run seed

Every row of a split is as wide as its longest example, padded on the right with 0.  A task gives `alphabet`, `chance`,
`variety` and `write`; one with an answer after every prefix subclasses `_state.StateTask`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError
from hqlt_lab.tasks._base import Batch, Harder, Split, Task
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._lengths import bucket_name, buckets, doubling, wrong_lengths
from hqlt_lab.tasks._score import percent, tally


@dataclass(frozen=True, kw_only=True)
class Generated(Task):
    """Examples of many sizes, from a counter."""

    train_length: tuple[int, int] = (3, 40)
    """The shortest and the longest size in train and short."""
    test_length: tuple[int, int] = (40, 256)
    """The same in test."""
    valid_length: tuple[int, int] | None = None
    """The same in valid; null: as in test."""
    data_seed: int = 0
    """Chooses the fixed sets short, valid and test."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        """How each token is written; the first is padding."""
        raise NotImplementedError(f"{type(self).__name__} has no alphabet.")

    @property
    def chance(self) -> float:
        """Accuracy in percent of guessing among the possible answers."""
        raise NotImplementedError(f"{type(self).__name__} does not say what guessing achieves.")

    @property
    def shortest(self) -> int:
        """The smallest size that can be asked for."""
        return 2

    @property
    def unread(self) -> int:
        return 1

    def variety(self, size: int) -> int:
        """How many different inputs of that size there are."""
        raise NotImplementedError(f"{type(self).__name__} does not count its inputs.")

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        """Tokens and labels [B, width] of examples of these sizes [B, 1]; what lies behind the end is cut off."""
        raise NotImplementedError(f"{type(self).__name__} writes no examples.")

    def mistakes(self) -> list[str]:
        """What is wrong with the task's own options, a sentence each."""
        return []

    def reach(self, low: int, high: int) -> tuple[int, int]:
        """The smallest and the largest size that occur when sizes from low to high are asked for."""
        return low, high

    def sizes(self, draws: Draws, low: int, high: int) -> Ints:
        """A size for each example, [B, 1]."""
        return draws.integers("size", low, high)

    def __post_init__(self) -> None:
        if complaints := self.mistakes() or self._common_mistakes():
            raise ConfigError("\n".join(complaints))

    def _common_mistakes(self) -> list[str]:
        asked = {name: getattr(self, name) for name in ("train_length", "test_length", "valid_length")}
        return wrong_lengths(asked, self.shortest) + self.too_small({"eval_size": 1})

    @property
    def vocabulary(self) -> int:
        """Tokens there are, padding included."""
        return len(self.alphabet)

    @property
    def lengths(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest size that occur in each split."""
        return {split: self.reach(*asked) for split, asked in self._asked().items()}

    def _asked(self) -> dict[str, tuple[int, int]]:
        valid = self.valid_length or self.test_length
        return {"train": self.train_length, "short": self.train_length, "valid": valid, "test": self.test_length}

    def tokens_in(self, split: Split) -> int:
        """How wide the rows of a split are."""
        return self.lengths[split][1] - self.unread

    def examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        """Examples first .. first + count - 1; only train looks at the run's seed."""
        seed = seed if split == "train" else self.data_seed
        draws, width = Draws(f"{type(self).__name__}/{split}/{seed}", first, count), self.tokens_in(split)
        sizes = self.sizes(draws, *self._asked()[split])
        tokens, labels = self.write(draws, sizes, width)
        real = np.arange(width) < sizes - self.unread  # [B, T]
        rows = (np.where(real, tokens, 0), np.where(real, labels, -1), sizes[:, 0])
        return Batch(*(torch.from_numpy(array) for array in rows))

    def repeats(self, split: Split, trained: int = 20_480_000) -> str | None:
        """A sentence where the split's shortest inputs are so few that other splits have them too; else None.

        `trained` is how many examples a run learns from.
        """
        size, (low, high) = self.lengths[split][0], self.lengths["train"]
        if self.variety(size) >= (trained if low <= size <= high else self.eval_size):
            return None
        return (
            f"{split}: there are only {self.variety(size)} different inputs of size {size}, "
            "so that the same ones occur in other splits."
        )

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """What is right and what was scored in each example, in all and by length; logits [B, T, V], numbers [B].

        Summed over all examples they give the metrics; from example to example they give their standard errors.
        """
        return tally(logits, batch.labels, batch.lengths, buckets(self.lengths))

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """From summed scores to accuracies in percent."""
        return percent(totals, self.chance)

    @property
    def by_guessing(self) -> Mapping[str, float]:
        return {"accuracy": self.chance, "normalised_accuracy": 0.0}

    @property
    def measures(self) -> list[str]:
        """The names of its metrics."""
        lengths = [f"accuracy/{bucket_name(bucket)}" for bucket in buckets(self.lengths)]
        return ["accuracy", "normalised_accuracy", *lengths]

    def harder(self, times: int) -> list[Harder]:
        longest = self.train_length[1]
        tests = [replace(self, test_length=(longest * by, longest * by)) for by in doubling(times)]
        return [Harder("length", test.lengths["test"][1], test) for test in tests]

    def decode(self, batch: Batch, row: int) -> str:
        """One example for people: its tokens, and in brackets each answer where it is due."""
        read = int(batch.lengths[row]) - self.unread
        pairs = zip(batch.tokens[row, :read].tolist(), batch.labels[row, :read].tolist(), strict=True)
        letters = self.alphabet
        return " ".join(letters[token] + (f" [{letters[label]}]" if label >= 0 else "") for token, label in pairs)
