"""The task interface: numbered examples of each split, and how they are scored.

    train   training examples, different for every run seed
    valid   for model selection      }  fixed sets of `eval_size` rows, the same for every arm and every run seed;
    test    for the report           }  some tasks also have `short`, with the sizes of training

Example i of a split is a function of (split, seed, i), so a batch is a function of the step, and the data do not depend
on the number of devices.  Most tasks generate their examples (`_generated_task`), `language` reads prepared text, and
an environment (`_environment`) has episodes instead of examples.  The options of a task are the fields of a frozen
dataclass.  Modules of this package import torch only in functions that make or read tensors, so that commands which
only describe a task start fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import check_minimums

if TYPE_CHECKING:
    from torch import Tensor

Split = Literal["train", "short", "valid", "test"]


class Batch(NamedTuple):
    """A batch of examples."""

    tokens: "Tensor"  # [B, T] the input; 0 is padding
    labels: "Tensor"  # [B, T] the label at each token; -1: not scored
    lengths: "Tensor"  # [B] the size of each example, as the task's paper counts it
    legal_next: "Tensor"  # [B, T] bit v: token v may follow; no columns if the task does not know what may follow

    def trim_padding(self, unread_tokens: int) -> "Batch":
        """Return the batch without the columns that are padding in all rows."""
        width = int(self.lengths.max()) - unread_tokens
        return Batch(self.tokens[:, :width], self.labels[:, :width], self.lengths, self.legal_next[:, :width])


class EvalSlice(NamedTuple):
    """A part of a fixed split with metrics of its own."""

    name: str  # in metrics: accuracy/pairs_8
    first: int  # number of its first row
    rows: int


class ExtrapolationTest(NamedTuple):
    """A harder variant of a task, for example with longer sequences than in training."""

    axis: str  # length, pairs or gap
    value: int
    task: "Task"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Base class of all tasks."""

    splits: ClassVar[tuple[Split, ...]] = ("train", "short", "valid", "test")
    score_input: ClassVar[Literal["logits", "losses"]] = "logits"
    """Input of `score_examples`: all logits, or only the loss at each token, which needs less memory."""
    is_environment: ClassVar[bool] = False
    """True for reinforcement-learning tasks, which have episodes instead of examples (`_environment.Environment`)."""
    scores_predictions: ClassVar[bool] = False
    """True if `score_predictions` scores the predicted tokens, so that `train.head: labeled` is possible."""
    has_rare_sizes: ClassVar[bool] = False
    """True if the smallest and largest sizes hardly occur.  Batches are then only as wide as their longest row."""
    has_data: ClassVar[bool] = False
    """True if the task reads data files.  `pin_options` then records which data are used, since files can change."""

    eval_size: int = 8192
    """Sequences in each of the fixed sets."""

    @classmethod
    def pin_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options that are fixed when an experiment file is read, such as the digest of the data."""
        return {}

    @property
    def unread_tokens(self) -> int:
        """Number of tokens counted in the size of an example but not part of its input, such as the answer.

        It is negative if the size leaves out tokens of the input.
        """
        return 0

    def check_ready(self) -> None:
        """Raise `ConfigError` if something needed for training is missing, such as data."""

    @property
    def vocabulary(self) -> int | None:
        """Number of different tokens; None if the model reads vectors and predicts no tokens."""
        raise NotImplementedError(f"{type(self).__name__} does not define `vocabulary`.")

    def sequence_length(self, split: Split) -> int:
        """Return the number of tokens per row of a split."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `sequence_length`.")

    def get_examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        """Return examples first .. first + count - 1.  Only `train` depends on the run's seed."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `get_examples`.")

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return the number of training steps after which the rows repeat; None: they never do."""
        return None

    def train_batch_sizes(self, batch_size: int) -> list[int]:
        """Return the different numbers of rows of training batches."""
        return [batch_size]

    def get_train_batch(self, seed: int, step: int, batch_size: int, rank: int = 0, world_size: int = 1) -> Batch:
        """Return the rows of a training step, or the part of them that one of several processes trains on."""
        rows_per_rank = batch_size // world_size
        return self.get_examples("train", seed, step * batch_size + rank * rows_per_rank, rows_per_rank)

    def slices(self, split: Split) -> Sequence[EvalSlice]:
        """Return the parts of a fixed split that have metrics of their own, without gaps; empty: none."""
        return ()

    def estimate_overlap(self, split: Split, train_examples: int) -> float | None:
        """Return the expected share of a split's inputs that occur in training too; None: not known."""
        return None

    def document_starts(self, tokens: "Tensor") -> "Tensor | None":
        """Return where documents begin, at which memories are reset, bool [B, T]; None: each row is one document."""
        return None

    def score_examples(self, outputs: "Tensor", batch: Batch) -> "dict[str, Tensor]":
        """Return counts per example [B], including `scored`, from logits [B, T, V] or losses [B, T].

        Their sums over all examples give the metrics, their variation between examples the standard errors.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `score_examples`.")

    def score_predictions(self, predictions: "Tensor", batch: Batch) -> "dict[str, Tensor]":
        """Return the counts of `score_examples` from predicted tokens [B, T], which matter only at labels."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `score_predictions`.")

    def compute_metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Compute metrics from summed counts.  `loss` is computed elsewhere for all tasks."""
        return {}

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics that `compute_metrics` returns."""
        return []

    @property
    def chance_by_metric(self) -> Mapping[str, float]:
        """Chance level of each metric that has a known one."""
        return {}

    @property
    def shortcut_scores(self) -> Mapping[str, Mapping[str, float]]:
        """Score of each metric that a shortcut reaches without solving the task, by a description of the shortcut."""
        return {}

    def extrapolation_tests(self, max_factor: int) -> list[ExtrapolationTest]:
        """Return variants of the task up to `max_factor` times harder.  The first per axis is as hard as training."""
        return []

    def format_example(self, batch: Batch, row: int) -> str:
        """Format one example as readable text."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `format_example`.")

    def check_minimums(self, minimums: Mapping[str, int]) -> list[ConfigIssue]:
        """Return an issue for each option that is below its minimum."""
        return check_minimums(self, minimums)
