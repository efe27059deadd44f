"""Which tokenizer a name means: bytes, bpe, mistral; any other name is one of Hugging Face's hub, or a folder."""

from collections.abc import Iterable
from pathlib import Path

from hqlt_lab.data.encoders._base import Encoder
from hqlt_lab.data.encoders.bpe import Bpe
from hqlt_lab.data.encoders.hub import Hub
from hqlt_lab.data.encoders.mistral import Mistral
from hqlt_lab.data.encoders.plain import Plain

KINDS: dict[str, type[Encoder]] = {"bytes": Plain, "bpe": Bpe, "mistral": Mistral}

__all__ = ["Encoder", "load_encoder", "make_encoder"]


def make_encoder(name: str, vocabulary: int, texts: Iterable[bytes]) -> Encoder:
    """The tokenizer of that name; only bpe looks at the texts, to learn that many tokens from them."""
    if name == "bpe":
        return Bpe.learn(texts, vocabulary)
    if name == "mistral":
        return Mistral.carried()
    return Plain() if name == "bytes" else Hub(name)


def load_encoder(name: str, folder: Path) -> Encoder:
    """The tokenizer that was kept in a folder."""
    return KINDS.get(name, Hub).load(folder)
