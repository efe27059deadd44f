"""The source interface: documents in a fixed order, readable from any document number on."""

from collections.abc import Iterator
from typing import Any, Protocol

Document = bytes | str  # the raw text, not yet checked to be UTF-8; or, as a str, the reason why it cannot be read

INVALID_JSON = "lines that are not JSON"


class Source(Protocol):
    """A source of documents in a fixed order."""

    @property
    def description(self) -> dict[str, Any]:
        """Identifies the source: sources with different descriptions have different documents."""
        ...

    def iterate_documents(self, first: int = 0) -> Iterator[Document]:
        """Yield the documents from number `first` on."""
        ...
