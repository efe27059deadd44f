"""Language: next-token prediction on text prepared with `hqlt data prepare`.

    a row is `length` tokens of the concatenated documents of a split; the labels are the tokens shifted by one
    bits per byte = sum of losses / ln 2 / bytes of the scored rows: comparable between tokenizers

Train reads its windows in a different order in every epoch and run; valid and test are the first `eval_size` windows of
held-out documents.  With `documents: cross` memories and softmax attention reach across document boundaries, as in the
paper; with `reset` every document is read independently.  The loss by position in the window shows whether more context
helps.  Scoring keeps only the loss at each token, no logits.

    task: {name: language, data: data/python, length: 512}

`vocabulary_size` allows planning an experiment without its data.  `digest` selects the data; if omitted, it is taken
from the data present when the file is read.  A run with different data is a different cell.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hqlt_lab.data.corpus_reader import Corpus, open_corpus
from hqlt_lab.errors import ConfigError, StoreError
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Batch, Split, Task

if TYPE_CHECKING:
    from torch import Tensor

FIRST_BUCKET_SIZE = 64  # positions in the first bucket; each further bucket ends at twice the position


@register("task", "language")
@dataclass(frozen=True, kw_only=True)
class Language(Task):
    data: str = "data/python"
    """Folder written by `hqlt data prepare`."""
    length: int = 512
    """Tokens per row."""
    documents: Literal["cross", "reset"] = "cross"
    """Whether memories continue across document boundaries (cross) or are reset at each document (reset)."""
    eval_size: int = 256
    """Rows in valid and in test."""
    vocabulary_size: int | None = None
    """Number of different tokens; null: as in the data. A larger number only adds unused parameters."""
    digest: str | None = None
    """Digest of the data; null: of the data present when the file is read."""

    splits = ("train", "valid", "test")
    score_input = "losses"
    has_data = True

    def __post_init__(self) -> None:
        if issues := self.check_minimums({"length": 2, "eval_size": 1, "vocabulary_size": 1}):
            raise ConfigError(*issues)

    @classmethod
    def pin_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        if options["digest"] is not None or not Path(options["data"]).is_dir():
            return {}
        return {"digest": open_task_corpus(options["data"]).digest}

    @cached_property
    def corpus(self) -> Corpus:
        """The data.  Raise `ConfigError` if they do not match `digest` or `vocabulary_size`."""
        corpus = open_task_corpus(self.data)
        if self.digest is not None and corpus.digest != self.digest:
            raise ConfigError.at(
                "data",
                "data_changed",
                f"{self.data} has the digest {corpus.digest}, but the task expects {self.digest}.",
                "Prepare the original data again, or leave the digest out.",
            )
        if self.vocabulary_size is not None and corpus.vocabulary > self.vocabulary_size:
            message = f"{self.data} has {corpus.vocabulary} different tokens, got {self.vocabulary_size}."
            raise ConfigError.at("vocabulary_size", "vocabulary_too_small", message)
        return corpus

    def check_ready(self) -> None:
        _ = self.corpus.tokenizer  # counts the bytes of scored rows; raises an error if its package is not installed
        held_out: tuple[Literal["valid", "test"], ...] = ("valid", "test")
        for split in held_out:
            num_rows = self.corpus.num_windows(split, self.length)
            if num_rows < self.eval_size:
                raise ConfigError.at(
                    "eval_size",
                    "too_few_rows",
                    f"{split} of {self.data} has {num_rows} rows of {self.length} tokens, got {self.eval_size}.",
                    "Use fewer, or hold out more documents.",
                )

    @property
    def vocabulary(self) -> int:
        return self.vocabulary_size or self.corpus.vocabulary

    def sequence_length(self, split: Split) -> int:
        return self.length

    def get_examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        import torch

        assert split != "short"
        windows = self.corpus.read_windows(split, seed, first, count, self.length)
        tokens, labels = torch.from_numpy(windows.tokens), torch.from_numpy(windows.labels)
        return Batch(tokens, labels, torch.full((count,), self.length), tokens[:, :0])

    def document_starts(self, tokens: "Tensor") -> "Tensor | None":
        return tokens == self.corpus.index.separator if self.documents == "reset" else None

    def score_examples(self, outputs: "Tensor", batch: Batch) -> "dict[str, Tensor]":
        import torch

        losses, counts = outputs.double(), {"scored": (batch.labels >= 0).sum(1)}
        for low, high in self.position_buckets:
            counts[f"loss/{position_bucket_name(low, high)}"] = losses[:, low : high + 1].sum(1)
            counts[f"scored/{position_bucket_name(low, high)}"] = (batch.labels[:, low : high + 1] >= 0).sum(1)
        num_bytes = [self.corpus.count_text_bytes(row) for row in batch.labels.cpu().numpy()]
        return counts | {"nats": losses.sum(1), "bytes": torch.tensor(num_bytes, device=losses.device)}

    def compute_metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        loss = totals["nats"] / totals["scored"]
        bits_per_byte = totals["nats"] / math.log(2) / max(totals["bytes"], 1)  # of the rows scored
        metrics = {"perplexity": math.exp(min(loss, 700)), "bits_per_byte": bits_per_byte}
        for low, high in self.position_buckets:
            name = position_bucket_name(low, high)
            metrics[f"loss/{name}"] = totals[f"loss/{name}"] / totals[f"scored/{name}"]
        return metrics

    @property
    def position_buckets(self) -> list[tuple[int, int]]:
        """First and last position of each bucket of a window: 0-63, 64-127, 128-255, ..."""
        starts = [0]
        while (start := max(starts[-1] * 2, FIRST_BUCKET_SIZE)) < self.length:
            starts.append(start)
        return list(zip(starts, [start - 1 for start in starts[1:]] + [self.length - 1], strict=True))

    @property
    def metric_names(self) -> list[str]:
        return [
            "perplexity",
            "bits_per_byte",
            *(f"loss/{position_bucket_name(*bucket)}" for bucket in self.position_buckets),
        ]

    def format_example(self, batch: Batch, row: int) -> str:
        return self.corpus.decode(batch.tokens[row].numpy())


def open_task_corpus(folder: str) -> Corpus:
    try:
        return open_corpus(folder)
    except StoreError as error:
        raise ConfigError.at("data", "data_cannot_be_read", str(error)) from error


def position_bucket_name(low: int, high: int) -> str:
    return f"position_{low}_{high}"
