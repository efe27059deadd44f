"""Byte-level BPE trained on the data: the most frequent pairs become tokens, and no text is unknown.

    token 0 is the separator, then 256 bytes, then the merges up to the requested vocabulary size

The tokenizer is trained on the first 64 MB of training documents and never on held-out ones.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hqlt_lab.data.tokenizers._base import TokenIds, import_optional
from hqlt_lab.errors import ConfigError
from hqlt_lab.process_settings import TOKENIZERS_ENV, set_env_defaults

SEPARATOR = "<|document|>"
TRAINING_BYTES = 64_000_000  # more text hardly changes which pairs are frequent
TOKENIZER_FILE = "tokenizer.json"


class BpeTokenizer:
    separator = 0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True  # encode the separator's name in a text as plain text
        self.vocabulary: int = tokenizer.get_vocab_size()

    @classmethod
    def train_from_texts(cls, texts: Iterable[bytes], vocabulary: int) -> Self:
        """Train a tokenizer with this vocabulary size."""
        if vocabulary < 257:
            message = f"at least 257 is needed, for the bytes and the separator, got {vocabulary}."
            raise ConfigError.at("vocabulary", "below_minimum", message)
        library = import_optional("tokenizers", "tokenizers", "tokenizer")
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[SEPARATOR],
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(take_bytes(texts, TRAINING_BYTES), trainer)
        return cls(tokenizer)

    def encode(self, texts: Sequence[bytes]) -> list[TokenIds]:
        encoded = self.tokenizer.encode_batch_fast([text.decode() for text in texts])
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encoded]

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / TOKENIZER_FILE))

    @classmethod
    def load(cls, folder: Path) -> Self:
        set_env_defaults(TOKENIZERS_ENV)
        library = import_optional("tokenizers", "tokenizers", "tokenizer")
        return cls(library.Tokenizer.from_file(str(folder / TOKENIZER_FILE)))


def take_bytes(texts: Iterable[bytes], max_bytes: int) -> Iterable[str]:
    """Yield texts until their total size reaches `max_bytes`."""
    for text in texts:
        yield text.decode()
        max_bytes -= len(text)
        if max_bytes <= 0:
            return
