"""The tokenizer interface: encode text to token ids, decode them, and save the tokenizer with the data."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from hqlt_lab.errors import ConfigError

TokenIds = NDArray[Any]  # unsigned integers of any width


class Tokenizer(Protocol):
    """Converts text to token ids and back."""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens, including the separator."""
        ...

    @property
    def separator(self) -> int:
        """Token inserted before every document."""
        ...

    def encode(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode UTF-8 texts, without separators.  The names of special tokens in a text are encoded as plain text."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """Decode tokens that contain no separator."""
        ...

    def save(self, folder: Path) -> None:
        """Write the files that `load` needs."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a tokenizer that `save` has written."""
        ...


def import_optional(module: str, package: str, setting: str) -> Any:
    """Import a module of an optional package.  Raise `ConfigError` with the install command if it is missing.

    `setting` is the option or function that needs the package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_package_error(package, setting) from error


def missing_package_error(package: str, setting: str) -> ConfigError:
    """Return the error for an optional package that is not installed."""
    hint = "Install it with: pip install -c constraints.txt -e '.[data]'"
    return ConfigError.at(setting, "package_not_installed", f"the package {package} is not installed.", hint)
