"""Bytes: every byte of the text is a token, and one more number separates documents.

vocabulary 257:   0 .. 255 the bytes of UTF-8,   256 the separator
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from hqlt_lab.data.encoders._base import Ids


class Plain:
    vocabulary = 257
    separator = 256

    def encode(self, texts: Sequence[bytes]) -> list[Ids]:
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def save(self, folder: Path) -> None:
        """There is nothing to keep."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls()
