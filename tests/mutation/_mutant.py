"""The type of the planted bugs."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One planted bug: `original` occurs exactly once in the file and is replaced by `replacement`."""

    name: str
    file: str
    original: str
    replacement: str
    tests: tuple[str, ...]
