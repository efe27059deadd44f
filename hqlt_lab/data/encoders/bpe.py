"""BPE of one's own: the most frequent pairs of the training documents become tokens, on bytes, so nothing is unknown.

    token 0 the separator,   256 bytes,   then the merges, until the vocabulary is as large as asked for

It learns from the first 64 MB of training documents; what is held out is never seen.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hqlt_lab.data.encoders._base import Ids, needed
from hqlt_lab.errors import ConfigError

SEPARATOR = "<|document|>"
LEARNS_FROM = 64_000_000  # bytes of text; more hardly changes which pairs are frequent
FILE = "tokenizer.json"


class Bpe:
    separator = 0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True  # the separator's name in a text is text
        self.vocabulary: int = tokenizer.get_vocab_size()

    @classmethod
    def learn(cls, texts: Iterable[bytes], vocabulary: int) -> Self:
        """Count pairs and merge the most frequent ones."""
        if vocabulary < 257:
            raise ConfigError(f"vocabulary: at least 257 is needed, for the bytes and the separator, got {vocabulary}.")
        library = needed("tokenizers", "tokenizers", "tokenizer bpe")
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[SEPARATOR],
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(first(texts, LEARNS_FROM), trainer)
        return cls(tokenizer)

    def encode(self, texts: Sequence[bytes]) -> list[Ids]:
        encoded = self.tokenizer.encode_batch_fast([text.decode() for text in texts])
        return [np.array(one.ids, dtype=np.uint32) for one in encoded]

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / FILE))

    @classmethod
    def load(cls, folder: Path) -> Self:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are the parallelism
        return cls(needed("tokenizers", "tokenizers", "tokenizer bpe").Tokenizer.from_file(str(folder / FILE)))


def first(texts: Iterable[bytes], size: int) -> Iterable[str]:
    """Texts until there are that many bytes of them."""
    for text in texts:
        yield text.decode()
        size -= len(text)
        if size <= 0:
            return
