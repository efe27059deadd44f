"""Read prepared text: window i of a split is a function of (split, seed, i, length).

window w    tokens w length .. w length + length of the split's concatenated documents;
            the labels are the same tokens shifted by one
train       each window once per epoch, in an order that depends only on (seed, epoch): a batch is a function of the
            step, independent of the process that reads it and of restarts
valid, test in order; reading past the end is an error
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.data.corpus_index import (
    SPLITS,
    CorpusIndex,
    Split,
    find_wrong_sizes,
    read_index,
    starts_file,
    tokens_file,
)
from hqlt_lab.data.tokenizers.load_tokenizer import Tokenizer, load_tokenizer
from hqlt_lab.data.window_order import IntArray, shuffle_windows
from hqlt_lab.errors import ConfigError, ConfigIssue, StoreError

SEPARATOR_TEXT = "<|document|>"  # printed in place of the separator token
REPLACEMENT_CHARACTER = "\ufffd"  # what a decoder shows for a character that is cut


class Windows(NamedTuple):
    """A batch of windows of a split."""

    tokens: IntArray  # [count, length]
    labels: IntArray  # [count, length] the next token
    document_starts: NDArray[np.bool_]  # [count, length] True where a document begins


def open_corpus(folder: Path | str) -> "Corpus":
    """Open a prepared folder and check its file sizes.  Reads only the index."""
    folder = Path(folder)
    index = read_index(folder)
    if errors := [message for _, message in find_wrong_sizes(folder, index)]:
        raise StoreError("\n".join([*errors, "Prepare the data again in another folder."]))
    return Corpus(folder, index)


class Corpus:
    """Read access to a prepared folder."""

    def __init__(self, folder: Path, index: CorpusIndex) -> None:
        self.folder, self.index = folder, index
        self.vocabulary, self.digest = index.vocabulary, index.digest
        self._shards = {
            split: [
                map_array(folder / tokens_file(split, number), index.dtype) for number in range(index.num_shards(split))
            ]
            for split in SPLITS
        }

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        """Pickle only the path: another process opens the folder itself."""
        return open_corpus, (self.folder,)

    def num_tokens(self, split: Split) -> int:
        return self.index.splits[check_split(split)].tokens

    def num_bytes(self, split: Split) -> int:
        """Return the size of the split's text in UTF-8 bytes."""
        return self.index.splits[check_split(split)].bytes

    def num_documents(self, split: Split) -> int:
        return self.index.splits[check_split(split)].documents

    def num_windows(self, split: Split, length: int) -> int:
        """Return the number of windows of this length.  The last token of the split is used only as a label."""
        return max(0, self.num_tokens(split) - 1) // length

    def read_windows(self, split: Split, seed: int, first: int, count: int, length: int) -> Windows:
        """Return windows first .. first + count - 1.  Only `train` depends on the seed."""
        block = np.empty((count, length + 1), dtype=self.index.dtype)
        for row, window in zip(block, self._window_numbers(split, seed, first, count, length).tolist(), strict=True):
            self._read_into(split, window * length, row)
        tokens, labels = block[:, :-1], block[:, 1:]
        return Windows(tokens.astype(np.int64), labels.astype(np.int64), tokens == self.index.separator)

    def read_document(self, split: Split, shard: int = 0, number: int = 0) -> IntArray:
        """Return the tokens of a document, beginning with its separator, cut off at the end of its shard."""
        starts = map_array(self.folder / starts_file(check_split(split), shard), "int64")
        tokens = self._shards[split][shard]
        end = starts[number + 1] if number + 1 < len(starts) else len(tokens)
        return tokens[starts[number] : end].astype(np.int64)

    def read_texts(self, split: Split, max_tokens: int) -> list[str]:
        """Decode the documents within the first `max_tokens` tokens of a split.  The last one may be cut off."""
        return self._decode_documents(self.read_tokens(split, 0, min(max_tokens, self.num_tokens(split))))

    def read_tokens(self, split: Split, first: int, count: int) -> IntArray:
        """Return tokens first .. first + count - 1 of a split's concatenated documents."""
        tokens = np.empty(count, dtype=self.index.dtype)
        self._read_into(split, first, tokens)
        return tokens.astype(np.int64)

    def encode(self, text: str) -> list[int]:
        """Encode text, without a separator."""
        return self.tokenizer.encode([text.encode()])[0].tolist()

    def decode(self, tokens: IntArray | list[int]) -> str:
        """Decode tokens, with separators shown as `SEPARATOR_TEXT`."""
        return SEPARATOR_TEXT.join(self._decode_documents(np.asarray(tokens)))

    def count_text_bytes(self, tokens: IntArray) -> int:
        """Return the number of UTF-8 bytes of the text of some tokens, without separators.

        A character that is cut at either end counts by its visible pieces, which may be off by up to two bytes.
        """
        texts = self._decode_documents(tokens)
        visible_texts = [text.strip(REPLACEMENT_CHARACTER) for text in texts]
        return sum(
            len(visible.encode()) + len(text) - len(visible) for text, visible in zip(texts, visible_texts, strict=True)
        )

    def _decode_documents(self, tokens: NDArray[Any]) -> list[str]:
        """Decode the text before the first separator and after each separator."""
        documents = np.split(tokens, np.flatnonzero(tokens == self.index.separator))
        return [self.tokenizer.decode(document[document != self.index.separator].tolist()) for document in documents]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer saved with the data."""
        return load_tokenizer(self.index.tokenizer, self.folder / "tokenizer")

    def _window_numbers(self, split: Split, seed: int, first: int, count: int, length: int) -> IntArray:
        available = self.num_windows(split, length)
        if not available or first < 0 or (split != "train" and first + count > available):
            message = (
                f"windows {first} to {first + count - 1} of {split} are needed, but its {self.num_tokens(split)} "
                f"tokens make only {available} windows of {length} tokens."
            )
            raise ConfigError(ConfigIssue("length", "too_few_windows", message, source=str(self.folder)))
        return shuffle_windows(first, count, available, seed) if split == "train" else np.arange(first, first + count)

    def _read_into(self, split: Split, first: int, out: NDArray[Any]) -> None:
        """Fill `out` with tokens of the split from position `first` on, across shards."""
        filled = 0
        while filled < len(out):
            shard, offset = divmod(first + filled, self.index.shard_tokens)
            tokens = self._shards[split][shard][offset : offset + len(out) - filled]
            out[filled : filled + len(tokens)] = tokens
            filled += len(tokens)


def map_array(file: Path, dtype: str) -> NDArray[Any]:
    """Memory-map a file.  Returns a plain array, since slicing it is faster than slicing a memmap."""
    if not file.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(file, dtype=np.dtype(dtype).newbyteorder("<"), mode="r"))


def check_split(split: Split) -> Split:
    if split not in SPLITS:
        raise ConfigError.at("split", "unknown_split", f"there is no split {split!r}.", f"Splits: {', '.join(SPLITS)}.")
    return split
