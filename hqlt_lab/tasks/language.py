"""Language: the next token of a text that `hqlt data prepare` has made.

    a row is `length` tokens of the documents of a split, one after the other; every token is due at the one before it
    bits per byte = loss / ln 2 * tokens / bytes of the split: comparable whatever the tokens are

Train reads its windows in another order in every epoch, and in every run; valid and test are the first `eval_size`
windows of documents that train does not have.  `documents: cross` lets memories and softmax look across the border
of two documents, as the paper does; with `reset` every document is read as if it were alone.  Loss by place in the
window tells whether more context helps.  No logits are kept, only the loss at each token.

    task: {name: language, data: data/python, length: 512}

`vocabulary_size` lets a file be planned where its data are not.  `digest` says which data: left out, those that are
there when the file is read, and a run with others is another cell.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hqlt_lab.data.corpus import Corpus, open_corpus
from hqlt_lab.errors import ConfigError, StoreError
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Batch, Split, Task

FIRST = 64  # places in the first bucket; each further one ends twice as far


@register("task", "language")
@dataclass(frozen=True, kw_only=True)
class Language(Task):
    data: str = "data/python"
    """The folder that `hqlt data prepare` has made."""
    length: int = 512
    """Tokens in a row."""
    documents: Literal["cross", "reset"] = "cross"
    """Whether memories go on across the border of two documents, or begin anew."""
    eval_size: int = 256
    """Rows in valid and in test."""
    vocabulary_size: int | None = None
    """Tokens there are; null: as many as the data have. More than these cost, and change nothing."""
    digest: str | None = None
    """Which data; null: those that are there when the file is read."""

    splits = ("train", "valid", "test")
    scored_by = "losses"
    has_data = True

    def __post_init__(self) -> None:
        wrong = self.too_small({"length": 2, "eval_size": 1, "vocabulary_size": 1})
        if wrong:
            raise ConfigError("\n".join(wrong))

    @classmethod
    def pinned(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        there = Path(options["data"]).is_dir()
        return {"digest": opened(options["data"]).digest} if there and options["digest"] is None else {}

    @cached_property
    def corpus(self) -> Corpus:
        """The data, which must be those that are meant."""
        corpus = opened(self.data)
        if self.digest is not None and corpus.digest != self.digest:
            raise ConfigError(
                f"data: {self.data} holds other data (digest {corpus.digest}) than are meant ({self.digest}). "
                "Prepare those again, or leave the digest out."
            )
        if self.vocabulary_size is not None and corpus.vocabulary > self.vocabulary_size:
            raise ConfigError(
                f"vocabulary_size: {self.data} has {corpus.vocabulary} different tokens, got {self.vocabulary_size}."
            )
        return corpus

    def check_ready(self) -> None:
        held: tuple[Literal["valid", "test"], ...] = ("valid", "test")
        for split in held:
            there = self.corpus.windows_in(split, self.length)
            if there < self.eval_size:
                raise ConfigError(
                    f"eval_size: {split} of {self.data} has {there} rows of {self.length} tokens, and "
                    f"{self.eval_size} are asked for. Use fewer, or hold out more documents."
                )

    @property
    def vocabulary(self) -> int:
        return self.vocabulary_size or self.corpus.vocabulary

    def tokens_in(self, split: Split) -> int:
        return self.length

    def examples(self, split: Split, seed: int, first: int, count: int) -> Batch:
        assert split != "short"
        found = self.corpus.windows(split, seed, first, count, self.length)
        tokens, labels = torch.from_numpy(found.tokens), torch.from_numpy(found.labels)
        return Batch(tokens, labels, torch.full((count,), self.length))

    def starts(self, tokens: Tensor) -> Tensor | None:
        return tokens == self.corpus.index.separator if self.documents == "reset" else None

    def score(self, found: Tensor, batch: Batch) -> dict[str, Tensor]:
        losses, counts = found.double(), {"scored": (batch.labels >= 0).sum(1)}
        for low, high in self.places:
            counts[f"loss/{name_of(low, high)}"] = losses[:, low : high + 1].sum(1)
            counts[f"scored/{name_of(low, high)}"] = (batch.labels[:, low : high + 1] >= 0).sum(1)
        return counts | {"nats": losses.sum(1)}

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        loss = totals["nats"] / totals["scored"]
        found = {"perplexity": math.exp(min(loss, 700)), "bits_per_byte": loss / math.log(2) * self.tokens_per_byte}
        for low, high in self.places:
            name = name_of(low, high)
            found[f"loss/{name}"] = totals[f"loss/{name}"] / totals[f"scored/{name}"]
        return found

    @cached_property
    def tokens_per_byte(self) -> float:
        """Of the held-out documents."""
        corpus = self.corpus
        return (corpus.tokens("valid") + corpus.tokens("test")) / (corpus.bytes("valid") + corpus.bytes("test"))

    @property
    def places(self) -> list[tuple[int, int]]:
        """The first and the last place of each bucket of a window: 0-63, 64-127, 128-255, ..."""
        edges = [0]
        while (step := max(edges[-1] * 2, FIRST)) < self.length:
            edges.append(step)
        return list(zip(edges, [edge - 1 for edge in edges[1:]] + [self.length - 1], strict=True))

    @property
    def measures(self) -> list[str]:
        return ["perplexity", "bits_per_byte", *(f"loss/{name_of(*place)}" for place in self.places)]

    def decode(self, batch: Batch, row: int) -> str:
        return self.corpus.decode(batch.tokens[row].numpy())


def opened(folder: str) -> Corpus:
    try:
        return open_corpus(folder)
    except StoreError as error:
        raise ConfigError(f"data: {error}") from error


def name_of(low: int, high: int) -> str:
    return f"place_{low}_{high}"
