"""Find the external component that raised an error, to report its file and line instead of a full traceback.

    update_rule 'mine' (mine.py, line 31) raised KeyError: 'beta'.

Built-in components are not considered: their errors are bugs of hqlt_lab or hardware faults, and need the traceback.
"""

import re
import sys
from traceback import walk_tb
from typing import NamedTuple

from hqlt_lab.errors import HqltError
from hqlt_lab.registry.entries import _factories, describe, display_path

# These would be raised again in a retry. Other exceptions may have a temporary cause, such as a hardware fault.
PROGRAMMING_ERRORS = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    ValueError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
)
# torch raises RuntimeError both for tensors that do not fit and for device failures
TENSOR_MISMATCH = re.compile(r"\b(shapes?|must match|dimensions?|dtype|expected)\b", re.IGNORECASE)


class ComponentFailure(NamedTuple):
    """An external component, and the line of its file that raised the error or that the error passed through."""

    kind: str
    name: str
    file: str
    line: int
    error: Exception

    def __str__(self) -> str:
        message = f"{type(self.error).__name__}: {self.error}".rstrip(": ")
        return f"{self.kind} {self.name!r} ({display_path(self.file)}, line {self.line}) raised {message.rstrip('.')}."

    @property
    def is_permanent(self) -> bool:
        """Whether the error is a programming error, which would be raised again in a retry."""
        is_mismatch = type(self.error) is RuntimeError and TENSOR_MISMATCH.search(str(self.error)) is not None
        return is_mismatch or isinstance(self.error, PROGRAMMING_ERRORS)


def find_failing_component(error: Exception) -> ComponentFailure | None:
    """Return the external component whose file, or else whose inherited method, is innermost in the traceback.

    Return None for HqltError and OSError, and if no external component is involved.
    """
    if isinstance(error, HqltError | OSError):
        return None
    # every traceback passes through the launcher, so launchers are left out
    components_by_file = {
        file: components
        for file, components in find_external_components().items()
        if not any(kind == "launcher" for kind, _ in components)
    }
    frames = [*walk_tb(error.__traceback__)][::-1]
    owners = {
        _factories[component]: (component, file)
        for file, components in components_by_file.items()
        for component in components
    }
    for frame, line in frames:
        if components := components_by_file.get(frame.f_code.co_filename):
            owner = owners.get(type(frame.f_locals.get("self")))  # may be a subclass of the one whose line it is
            component = owner[0] if owner else component_at_line(components, line)
            return ComponentFailure(*component, frame.f_code.co_filename, line, error)
    for frame, _ in frames:
        if owner := owners.get(type(frame.f_locals.get("self"))):
            component, file = owner
            return ComponentFailure(*component, file, describe(*component).line, error)
    return None


def find_external_components() -> dict[str, list[tuple[str, str]]]:
    """Return (kind, name) of all components that are not built in, grouped by file."""
    components_by_file: dict[str, list[tuple[str, str]]] = {}
    for (kind, name), factory in _factories.items():
        file = getattr(sys.modules.get(factory.__module__), "__file__", None)
        if file and not factory.__module__.startswith("hqlt_lab."):
            components_by_file.setdefault(file, []).append((kind, name))
    return components_by_file


def component_at_line(components: list[tuple[str, str]], line: int) -> tuple[str, str]:
    """Return the component of a file whose definition starts last before the line, or else the first one."""
    by_start_line = {describe(*component).line: component for component in components}
    return by_start_line[max((start for start in by_start_line if start <= line), default=min(by_start_line))]
