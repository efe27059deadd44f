"""Mistral: the 32,000 pieces of Mistral-7B v0.1, which the package mistral-common carries, so that no hub is needed.

    token 0 unknown (never needed: bytes are pieces),   1 begins a document,   2 ends one (not used here)

Read by sentencepiece alone: importing mistral_common takes seconds.
"""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from hqlt_lab.data.encoders._base import Ids, needed
from hqlt_lab.errors import ConfigError

FILE = "tokenizer.model"


class Mistral:
    def __init__(self, file: Path) -> None:
        self.file = file
        library = needed("sentencepiece", "sentencepiece", "tokenizer mistral")
        self.pieces = library.SentencePieceProcessor(model_file=str(file))
        self.vocabulary: int = self.pieces.vocab_size()
        self.separator: int = self.pieces.bos_id()

    @classmethod
    def carried(cls) -> Self:
        """The one inside the installed package."""
        found = importlib.util.find_spec("mistral_common")
        if found is None or found.origin is None:
            raise ConfigError(
                "tokenizer mistral: the package mistral-common is not installed. "
                "Install it with: pip install -c constraints.txt -e '.[data]'"
            )
        return cls(Path(found.origin).parent / "data" / "tokenizer.model.v1")

    def encode(self, texts: Sequence[bytes]) -> list[Ids]:
        encoded = self.pieces.encode([text.decode() for text in texts], num_threads=1)
        return [np.array(ids, dtype=np.uint32) for ids in encoded]

    def decode(self, tokens: list[int]) -> str:
        return str(self.pieces.decode(tokens))

    def save(self, folder: Path) -> None:
        shutil.copyfile(self.file, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(folder / FILE)
