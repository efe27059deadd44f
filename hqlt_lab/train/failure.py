"""Why a run failed, in a sentence, and whether it would fail the same way the next time."""

from typing import NamedTuple

from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.registry import blamed
from hqlt_lab.secrets import scrubbed


class Passing(TrainingError):
    """It failed for a reason that may be gone the next time."""


class Failure(NamedTuple):
    """How a run failed."""

    why: str
    permanent: bool


def failure_of(error: Exception) -> Failure:
    """The lab's own complaints would be the same the next time, and so would a slip in a part."""
    if isinstance(error, HqltError):
        return Failure(scrubbed(str(error)), not isinstance(error, Passing))
    blame = blamed(error)
    why = str(blame) if blame else f"{type(error).__name__}: {error}"
    return Failure(scrubbed(why), bool(blame and blame.permanent))
