"""Which part from outside an error came out of: its author needs the line, not the whole way that led there.

    update_rule 'mine' (mine.py, line 31) raised KeyError: 'beta'.

The lab's own parts are not blamed: what they raise is the lab's mistake, or the machine's, and needs its traceback.
"""

import os
import re
import sys
from traceback import walk_tb
from typing import NamedTuple

from hqlt_lab.errors import HqltError
from hqlt_lab.registry.entries import _book, describe

# wrong whenever it is tried; whatever else is raised may be the machine's doing
SLIPS = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    ValueError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
)
# torch says by RuntimeError both that tensors do not fit and that a device has failed
DO_NOT_FIT = re.compile(r"\b(shapes?|must match|dimensions?|dtype|expected)\b", re.IGNORECASE)


class Blame(NamedTuple):
    """A part, and the line of its file at which an error arose or passed through."""

    kind: str
    name: str
    file: str
    line: int
    error: Exception

    def __str__(self) -> str:
        said = f"{type(self.error).__name__}: {self.error}".rstrip(": ")
        return f"{self.kind} {self.name!r} ({shown(self.file)}, line {self.line}) raised {said.rstrip('.')}."

    @property
    def permanent(self) -> bool:
        """Whether the same would be raised the next time."""
        unfit = type(self.error) is RuntimeError and DO_NOT_FIT.search(str(self.error)) is not None
        return unfit or isinstance(self.error, SLIPS)


def blamed(error: Exception) -> Blame | None:
    """The part in whose file, or else in whose inherited code, the error arose; none for complaints and the disk's."""
    if isinstance(error, HqltError | OSError):
        return None
    # a launcher is on the way to everything
    parts = {file: found for file, found in outside_parts().items() if not any(kind == "launcher" for kind, _ in found)}
    frames = [*walk_tb(error.__traceback__)][::-1]
    for frame, line in frames:
        if found := parts.get(frame.f_code.co_filename):
            return Blame(*nearest(found, line), frame.f_code.co_filename, line, error)
    makers = {_book[part]: (*part, file) for file, found in parts.items() for part in found}
    for frame, _ in frames:
        if owner := makers.get(type(frame.f_locals.get("self"))):
            return Blame(*owner, describe(*owner[:2]).line, error)
    return None


def outside_parts() -> dict[str, list[tuple[str, str]]]:
    """Kind and name of the parts that are not the lab's, by their file."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (kind, name), maker in _book.items():
        file = getattr(sys.modules.get(maker.__module__), "__file__", None)
        if file and not maker.__module__.startswith("hqlt_lab."):
            found.setdefault(file, []).append((kind, name))
    return found


def nearest(parts: list[tuple[str, str]], line: int) -> tuple[str, str]:
    """Of the parts in one file, the one that begins last before the line, or else the first."""
    begins = {describe(*part).line: part for part in parts}
    return begins[max((begin for begin in begins if begin <= line), default=min(begins))]


def shown(file: str) -> str:
    """From here, if it is below."""
    near = os.path.relpath(file)
    return file if near.startswith("..") else near
