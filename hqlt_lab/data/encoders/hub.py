"""Any tokenizer of Hugging Face, by its name on the hub or by a folder; a copy is kept with the data.

Documents are separated by the token that begins a text, or, where a tokenizer has none, by the one that ends it.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hqlt_lab.data.encoders._base import Ids, needed
from hqlt_lab.errors import ConfigError


class Hub:
    def __init__(self, name: str | Path) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are the parallelism
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        library = needed("transformers", "transformers", f"tokenizer {name}")
        try:
            self.tokenizer: Any = library.AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tokenizer {name}: it is no folder with a tokenizer, and the hub did not give it "
                f"({str(error).splitlines()[0]}). Without the hub there are: bytes, bpe, mistral."
            ) from error
        # a document longer than a model's context is what windows are for
        logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
        self.vocabulary = len(self.tokenizer)
        self.separator = separator(self.tokenizer, name)

    def encode(self, texts: Sequence[bytes]) -> list[Ids]:
        encoded = self.tokenizer(
            [text.decode() for text in texts],
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
        )
        return [np.array(ids, dtype=np.uint32) for ids in encoded["input_ids"]]

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens))

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(str(folder))

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(folder)


def separator(tokenizer: Any, name: str | Path) -> int:
    for special in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if special is not None:
            return int(special)
    raise ConfigError(f"tokenizer {name}: it has no token that begins or ends a text, so documents have no border.")
