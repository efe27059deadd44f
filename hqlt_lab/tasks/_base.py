"""The contract of a task: numbered examples of its splits, and what counts.

    train   what is learned; other examples for every run seed
    valid   what is selected on      }  fixed sets of `eval_size` rows, the same for every arm and every run seed;
    test    what is reported         }  some tasks have `short` too, as long as in training

Example number i of a split is a function of (split, seed, i), so that a batch is a function of the step and any number
of devices see the same data.  Most tasks are `_generated`; a text that was prepared is `language`; what is acted in has
episodes instead of examples, and is a `_world`.  Options of a task are the fields of a frozen dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

Split = Literal["train", "short", "valid", "test"]


class Batch(NamedTuple):
    """Some examples of a split."""

    tokens: Tensor  # [B, T] what is read; 0 is padding
    labels: Tensor  # [B, T] the answer that is due at each token; -1: none, not scored
    lengths: Tensor  # [B] the size of each example, as its paper counts it


class Harder(NamedTuple):
    """The same task, further along one of its sides than what is learned."""

    along: str  # length, pairs, distance
    value: int
    task: "Task"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the lab asks of a task."""

    splits: ClassVar[tuple[Split, ...]] = ("train", "short", "valid", "test")
    scored_by: ClassVar[Literal["logits", "losses"]] = "logits"
    """What `score` looks at: all logits, or only the loss at each token, for which no logits need be kept."""
    is_world: ClassVar[bool] = False
    """Whether there are no examples, but episodes to act in: `_world.World`."""
    has_data: ClassVar[bool] = False
    """Whether it reads data, which `pinned` looks at: the same file may then mean another thing tomorrow."""

    eval_size: int = 8192
    """Sequences in each of the fixed sets."""

    @classmethod
    def pinned(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options that are settled when a file is read, such as which data there are."""
        return {}

    @property
    def unread(self) -> int:
        """How many tokens of a size are not read: the answer, where a paper counts it."""
        return 0

    def check_ready(self) -> None:
        """A ConfigError where something is missing without which nothing can be learned."""

    @property
    def vocabulary(self) -> int | None:
        """Tokens there are; None: vectors are read, and nothing is predicted."""
        raise NotImplementedError(f"{type(self).__name__} has no vocabulary.")

    def tokens_in(self, split: Split) -> int:
        """How wide the rows of a split are."""
        raise NotImplementedError(f"{type(self).__name__} does not say how long its rows are.")

    def examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        """Examples first .. first + count - 1; only train looks at the run's seed."""
        raise NotImplementedError(f"{type(self).__name__} has no examples.")

    def starts(self, tokens: Tensor) -> Tensor | None:
        """Where documents begin whose memories begin empty, bool [B, T]; None: a row is one document."""
        return None

    def score(self, found: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Counts of each example [B], `scored` among them; found: logits [B, T, V], or losses [B, T].

        Summed over all examples they give the metrics; from example to example they give their standard errors.
        """
        raise NotImplementedError(f"{type(self).__name__} is not scored.")

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """From summed counts to what is reported; `loss` is there without it."""
        return {}

    @property
    def measures(self) -> list[str]:
        """The names of its metrics."""
        return []

    @property
    def by_guessing(self) -> Mapping[str, float]:
        """What guessing reaches in those of its metrics of which that is known."""
        return {}

    def harder(self, times: int) -> list[Harder]:
        """Tests up to so many times as far as what is learned; the first on each side is no harder than that."""
        return []

    def decode(self, batch: Batch, row: int) -> str:
        """One example for people."""
        raise NotImplementedError(f"{type(self).__name__} cannot be read by people.")

    def too_small(self, least: Mapping[str, int]) -> list[str]:
        """A sentence for each of these options that is smaller than it may be."""
        return [
            f"{name}: at least {low} is needed, got {getattr(self, name)}."
            for name, low in least.items()
            if getattr(self, name) is not None and getattr(self, name) < low
        ]
