"""Create or load a tokenizer by name: bytes, bpe, mistral, or otherwise a Hugging Face tokenizer or its folder."""

from collections.abc import Iterable
from pathlib import Path

from hqlt_lab.data.tokenizers._base import Encoder
from hqlt_lab.data.tokenizers.bpe import BpeEncoder
from hqlt_lab.data.tokenizers.byte_tokenizer import BytesEncoder
from hqlt_lab.data.tokenizers.hub_tokenizer import HubEncoder
from hqlt_lab.data.tokenizers.mistral import MistralEncoder

ENCODERS: dict[str, type[Encoder]] = {"bytes": BytesEncoder, "bpe": BpeEncoder, "mistral": MistralEncoder}

__all__ = ["Encoder", "load_encoder", "make_encoder"]


def make_encoder(name: str, vocabulary: int, texts: Iterable[bytes]) -> Encoder:
    """Create the tokenizer of this name.  Only bpe uses `vocabulary` and `texts`, for training."""
    if name == "bpe":
        return BpeEncoder.train_from_texts(texts, vocabulary)
    if name == "mistral":
        return MistralEncoder.load_installed()
    return BytesEncoder() if name == "bytes" else HubEncoder(name)


def load_encoder(name: str, folder: Path) -> Encoder:
    """Load the tokenizer of this name from the folder it was saved in."""
    return ENCODERS.get(name, HubEncoder).load(folder)
