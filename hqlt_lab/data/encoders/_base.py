"""The contract of a tokenizer here: texts in, numbers out, without the separator; and it can be kept with the data."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from hqlt_lab.errors import ConfigError

Ids = NDArray[Any]  # unsigned integers, of any width


class Encoder(Protocol):
    """What turns texts into tokens."""

    @property
    def vocabulary(self) -> int:
        """Tokens there are, the separator included."""
        ...

    @property
    def separator(self) -> int:
        """The token that is put before every document."""
        ...

    def encode(self, texts: Sequence[bytes]) -> list[Ids]:
        """The tokens of each text, which is UTF-8; what looks like a special token in it is text like any other."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """The text of some tokens, among which there is no separator."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` needs into a folder."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The one that was saved there."""
        ...


def needed(module: str, package: str, who: str) -> Any:
    """A module of an optional package, or a sentence on how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{who}: the package {package} is not installed. "
            "Install it with: pip install -c constraints.txt -e '.[data]'"
        ) from error
