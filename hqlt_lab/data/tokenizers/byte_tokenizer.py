"""Byte tokenizer: every UTF-8 byte is a token, and one more token separates documents.

vocabulary 257:   0 .. 255 UTF-8 bytes,   256 the separator
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from hqlt_lab.data.tokenizers._base import TokenIds


class ByteTokenizer:
    vocabulary = 257
    separator = 256

    def encode(self, texts: Sequence[bytes]) -> list[TokenIds]:
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Write nothing: the tokenizer has no parameters."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls()
