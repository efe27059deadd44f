"""Describe why a run failed, and whether a retry would fail in the same way."""

from traceback import walk_tb
from typing import NamedTuple

from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.redact import redact_secrets
from hqlt_lab.registry import find_failing_component


class TransientError(TrainingError):
    """A failure whose cause may be gone at the next attempt."""

    def __init__(self, why: str, signature: str = "") -> None:
        super().__init__(why)
        self.signature = signature  # of the error in a child process; see `Failure`


class Failure(NamedTuple):
    """Why a run failed."""

    why: str
    permanent: bool  # a retry would fail in the same way
    signature: str = ""  # exception, message and line: equal in two attempts if one cause failed both; "" if unknown


def describe_failure(error: Exception) -> Failure:
    """Return the reason for a failure.  An HqltError (except TransientError) and a bug in a component are permanent."""
    if isinstance(error, TransientError):
        return Failure(redact_secrets(str(error)), False, error.signature)
    if isinstance(error, HqltError):
        return Failure(redact_secrets(str(error)), True)
    component_failure = find_failing_component(error)
    why = str(component_failure) if component_failure else f"{type(error).__name__}: {error}"
    return Failure(
        redact_secrets(why), bool(component_failure and component_failure.is_permanent), error_signature(error)
    )


def error_signature(error: Exception) -> str:
    """Return exception, message and line of an error; "" if the machine or another program may be the cause."""
    # by name: importing torch here would slow down every command
    if isinstance(error, OSError | MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return ""
    *_, (frame, line) = [(None, 0), *walk_tb(error.__traceback__)]
    file = frame.f_code.co_filename if frame else ""
    return redact_secrets(f"{type(error).__name__}: {error} ({file}:{line})")
