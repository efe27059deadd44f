"""Any Hugging Face tokenizer, by its name on the hub or a folder.  A copy is saved with the data.

The separator is the tokenizer's BOS token, or its EOS token if it has no BOS token.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hqlt_lab.data.tokenizers._base import TokenIds, import_optional
from hqlt_lab.errors import ConfigError
from hqlt_lab.process_settings import HUB_TOKENIZER_ENV, set_env_defaults


class HubTokenizer:
    def __init__(self, name: str | Path) -> None:
        set_env_defaults(HUB_TOKENIZER_ENV)
        library = import_optional("transformers", "transformers", "tokenizer")
        try:
            self.tokenizer: Any = library.AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ConfigError.at(
                "tokenizer",
                "tokenizer_not_found",
                f"{name} is not a folder with a tokenizer, and the hub does not have it "
                f"({str(error).splitlines()[0]}).",
                "Tokenizers without the hub: bytes, bpe, mistral.",
            ) from error
        # silences the warning for documents longer than the model's context: they are read in windows
        logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
        self.vocabulary = len(self.tokenizer)
        self.separator = separator_token_id(self.tokenizer, name)

    def encode(self, texts: Sequence[bytes]) -> list[TokenIds]:
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


def separator_token_id(tokenizer: Any, name: str | Path) -> int:
    for special in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if special is not None:
            return int(special)
    message = f"{name} has no token for the start or end of a text, so documents cannot be separated."
    raise ConfigError.at("tokenizer", "tokenizer_without_separator", message)
