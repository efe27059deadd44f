"""Reading prepared text: window i of a split is a function of (split, seed, i, length).

window w    tokens w length .. w length + length of the split's documents, one after the other;
            the labels are the same, one token later
train       in every epoch each window once, in an order that depends on (seed, epoch) alone: a batch is a function
            of the step, whoever reads it and however often it is begun again
valid, test in order; there is nothing past the end
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.data.encoders.choose import Encoder, load_encoder
from hqlt_lab.data.index import SPLITS, Index, Split, read_index, starts_file, tokens_file, wrong_sizes
from hqlt_lab.data.order import Ints, shuffled
from hqlt_lab.errors import ConfigError, StoreError

BORDER = "<|document|>"  # how a separator is shown to people


class Windows(NamedTuple):
    """Some windows of a split."""

    tokens: Ints  # [count, length]
    labels: Ints  # [count, length] the next token
    starts: NDArray[np.bool_]  # [count, length] whether a document begins here


def open_corpus(folder: Path | str) -> "Corpus":
    """The data in a folder; quick, as nothing but the index is read."""
    folder = Path(folder)
    index = read_index(folder)
    if wrong := list(wrong_sizes(folder, index)):
        raise StoreError("\n".join([*wrong, "Prepare the data again in another folder."]))
    return Corpus(folder, index)


class Corpus:
    """A prepared folder."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self.vocabulary, self.digest = index.vocabulary, index.digest
        self._shards = {
            split: [mapped(folder / tokens_file(split, number), index.dtype) for number in range(index.shards(split))]
            for split in SPLITS
        }

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        """Another process opens the folder itself, instead of being sent all tokens."""
        return open_corpus, (self.folder,)

    def tokens(self, split: Split) -> int:
        return self.index.splits[known(split)].tokens

    def bytes(self, split: Split) -> int:
        """How much text that was, in UTF-8."""
        return self.index.splits[known(split)].bytes

    def documents(self, split: Split) -> int:
        return self.index.splits[known(split)].documents

    def windows_in(self, split: Split, length: int) -> int:
        """How many windows of that length there are; the last token is no more than a label."""
        return max(0, self.tokens(split) - 1) // length

    def windows(self, split: Split, seed: int, first: int, count: int, length: int) -> Windows:
        """Windows number first .. first + count - 1; only train looks at the seed."""
        block = np.empty((count, length + 1), dtype=self.index.dtype)
        for row, window in zip(block, self._places(split, seed, first, count, length).tolist(), strict=True):
            self._read(split, window * length, row)
        read, due = block[:, :-1], block[:, 1:]
        return Windows(read.astype(np.int64), due.astype(np.int64), read == self.index.separator)

    def document(self, split: Split, shard: int = 0, number: int = 0) -> Ints:
        """The tokens of a document, from its separator to the end of its shard at most."""
        starts = mapped(self.folder / starts_file(known(split), shard), "int64")
        tokens = self._shards[split][shard]
        end = starts[number + 1] if number + 1 < len(starts) else len(tokens)
        return tokens[starts[number] : end].astype(np.int64)

    def texts(self, split: Split, most: int) -> list[str]:
        """The documents among the first tokens of a split, as text again; the last one may be cut off."""
        return self._decoded(self.piece(split, 0, min(most, self.tokens(split))))

    def piece(self, split: Split, first: int, count: int) -> Ints:
        """Tokens first .. first + count - 1 of a split's documents, one after the other."""
        tokens = np.empty(count, dtype=self.index.dtype)
        self._read(split, first, tokens)
        return tokens.astype(np.int64)

    def encode(self, text: str) -> list[int]:
        """Text as tokens, without a separator."""
        return self.encoder.encode([text.encode()])[0].tolist()

    def decode(self, tokens: Ints | list[int]) -> str:
        """Tokens as text, for people."""
        return BORDER.join(self._decoded(np.asarray(tokens)))

    def _decoded(self, tokens: NDArray[Any]) -> list[str]:
        """What stands before the first separator, and behind each."""
        parts = np.split(tokens, np.flatnonzero(tokens == self.index.separator))
        return [self.encoder.decode(part[part != self.index.separator].tolist()) for part in parts]

    @cached_property
    def encoder(self) -> Encoder:
        """What made the tokens."""
        return load_encoder(self.index.tokenizer, self.folder / "tokenizer")

    def _places(self, split: Split, seed: int, first: int, count: int, length: int) -> Ints:
        there = self.windows_in(split, length)
        if not there or first < 0 or (split != "train" and first + count > there):
            raise ConfigError(
                f"{self.folder}: windows {first} to {first + count - 1} of {split} were asked for, and there are "
                f"{there} of {length} tokens. {split} has {self.tokens(split)} tokens."
            )
        return shuffled(first, count, there, seed) if split == "train" else np.arange(first, first + count)

    def _read(self, split: Split, first: int, into: NDArray[Any]) -> None:
        """Fill a row with the tokens from a place of the split on, across shards."""
        filled = 0
        while filled < len(into):
            shard, offset = divmod(first + filled, self.index.shard_tokens)
            part = self._shards[split][shard][offset : offset + len(into) - filled]
            into[filled : filled + len(part)] = part
            filled += len(part)


def mapped(file: Path, dtype: str) -> NDArray[Any]:
    """A file as an array that is read when it is looked at; a plain one, whose slices are quicker than a memmap's."""
    if not file.stat().st_size:  # nothing cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(file, dtype=np.dtype(dtype).newbyteorder("<"), mode="r"))


def known(split: Split) -> Split:
    if split not in SPLITS:
        raise ConfigError(f"{split!r}: there is no such split. There are: {', '.join(SPLITS)}.")
    return split
