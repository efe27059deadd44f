"""The contract of a source: documents in an order that never changes, from any number on."""

from collections.abc import Iterator
from typing import Any, Protocol

Document = bytes | str  # the text as it was found, not yet known to be UTF-8; or, as a str, why there is none

NOT_JSON = "lines that are no JSON"


class Source(Protocol):
    """Where documents come from."""

    @property
    def description(self) -> dict[str, Any]:
        """What it is; another description is another source."""
        ...

    def documents(self, first: int = 0) -> Iterator[Document]:
        """The documents from number `first` on."""
        ...
