"""Mistral tokenizer: the 32,000 tokens of Mistral-7B v0.1 from the package mistral-common, so no hub is needed.

    token 0 unknown (never used: every byte is a token),   1 begins a document,   2 ends one (not used here)

The model file is loaded with sentencepiece only, because importing mistral_common takes seconds.
"""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from hqlt_lab.data.tokenizers._base import TokenIds, import_optional, missing_package_error

MODEL_FILE = "tokenizer.model"


class MistralTokenizer:
    def __init__(self, file: Path) -> None:
        self.file = file
        library = import_optional("sentencepiece", "sentencepiece", "tokenizer")
        self.processor = library.SentencePieceProcessor(model_file=str(file))
        self.vocabulary: int = self.processor.vocab_size()
        self.separator: int = self.processor.bos_id()

    @classmethod
    def load_installed(cls) -> Self:
        """Load the tokenizer from the installed package mistral-common."""
        spec = importlib.util.find_spec("mistral_common")
        if spec is None or spec.origin is None:
            raise missing_package_error("mistral-common", "tokenizer")
        return cls(Path(spec.origin).parent / "data" / "tokenizer.model.v1")

    def encode(self, texts: Sequence[bytes]) -> list[TokenIds]:
        encoded = self.processor.encode([text.decode() for text in texts], num_threads=1)
        return [np.array(ids, dtype=np.uint32) for ids in encoded]

    def decode(self, tokens: list[int]) -> str:
        return str(self.processor.decode(tokens))

    def save(self, folder: Path) -> None:
        shutil.copyfile(self.file, folder / MODEL_FILE)

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(folder / MODEL_FILE)
