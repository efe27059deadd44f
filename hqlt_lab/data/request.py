"""What data to make.  The same request makes the same bytes, however often it was interrupted."""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from hqlt_lab.errors import ConfigError

OF_THE_SOURCE = ("source", "text", "config", "split")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A source, a tokenizer, and what to hold out."""

    source: str
    """python, a file, a folder, or a dataset of Hugging Face."""
    text: str = "text"
    """The field or column that is the text."""
    config: str | None = None
    """The dataset's configuration."""
    split: str = "train"
    """The dataset's split that is read."""
    tokenizer: str = "bytes"
    """bytes, bpe, mistral, or a tokenizer of Hugging Face."""
    vocabulary: int = 4096
    """How many tokens bpe learns."""
    limit_documents: int | None = None
    """Read no more documents than that."""
    valid: float = 0.01
    """The share of documents that is held out for selection."""
    test: float = 0.01
    """The share of documents that is held out for the report."""
    shard_tokens: int = 1 << 28
    """Tokens in a file."""

    def __post_init__(self) -> None:
        if complaints := [*self._mistakes()]:
            raise ConfigError("\n".join(complaints))

    def _mistakes(self) -> list[str]:
        shares = {"valid": self.valid, "test": self.test}
        strange = {name: share for name, share in shares.items() if isnan(share) or share < 0}
        wrong = [f"{name}: a share from 0 to 1 is needed, got {share}." for name, share in strange.items()]
        if sum(shares.values()) >= 1:
            wrong.append(f"valid and test: {self.valid} and {self.test} leave nothing to train on.")
        counts = {"limit_documents": self.limit_documents, "shard_tokens": self.shard_tokens}
        given = {name: number for name, number in counts.items() if number is not None}
        return wrong + [f"{name}: at least 1 is needed, got {given[name]}." for name in given if given[name] < 1]

    @property
    def options(self) -> dict[str, Any]:
        """What was asked of the source's documents."""
        told = {name: value for name, value in asdict(self).items() if name not in OF_THE_SOURCE}
        return told if self.tokenizer == "bpe" else told | {"vocabulary": None}
