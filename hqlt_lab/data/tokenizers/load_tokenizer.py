"""Create or load a tokenizer by name: bytes, bpe, mistral, or otherwise a Hugging Face tokenizer or its folder."""

from collections.abc import Iterable
from pathlib import Path

from hqlt_lab.data.tokenizers._base import Tokenizer
from hqlt_lab.data.tokenizers.bpe import BpeTokenizer
from hqlt_lab.data.tokenizers.byte_tokenizer import ByteTokenizer
from hqlt_lab.data.tokenizers.hub_tokenizer import HubTokenizer
from hqlt_lab.data.tokenizers.mistral import MistralTokenizer

TOKENIZERS: dict[str, type[Tokenizer]] = {"bytes": ByteTokenizer, "bpe": BpeTokenizer, "mistral": MistralTokenizer}

__all__ = ["Tokenizer", "create_tokenizer", "load_tokenizer"]


def create_tokenizer(name: str, vocabulary: int, texts: Iterable[bytes]) -> Tokenizer:
    """Create the tokenizer of this name.  Only bpe uses `vocabulary` and `texts`, for training."""
    if name == "bpe":
        return BpeTokenizer.train_from_texts(texts, vocabulary)
    if name == "mistral":
        return MistralTokenizer.load_installed()
    return ByteTokenizer() if name == "bytes" else HubTokenizer(name)


def load_tokenizer(name: str, folder: Path) -> Tokenizer:
    """Load the tokenizer of this name from the folder it was saved in."""
    return TOKENIZERS.get(name, HubTokenizer).load(folder)
