"""How a command ends: the numbers that scripts see, in one place.

After 1 and 2 nothing has come out; after 3 all that could be done was done, and standard output is whole.
"""

import errno
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from hqlt_lab.errors import HqltError
from hqlt_lab.files import FULL
from hqlt_lab.registry import blamed
from hqlt_lab.secrets import scrubbed

CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
FILES = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


class Exit(IntEnum):
    """What a number means."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "Exit":
        """An int with a sentence."""
        made = int.__new__(cls, number)
        made._value_, made.meaning = number, meaning
        return made

    DONE = 0, "Done."
    MISTAKE = (
        1,
        "A mistake in a file, a name or a value, or a disk that refuses: standard error says in a sentence which.",
    )
    USAGE = 2, "No such command, argument or option, or one is missing."
    NOT_ALL_WELL = (
        3,
        "Done, but cells failed, an arm has no result as all its cells diverged, tasks could not be asked, or parts or "
        "data do not pass their check.",
    )
    STOPPED = 130, "Stopped by Ctrl-C or SIGTERM; the same command goes on."
    UNREAD = 141, "Whoever read the output by pipe stopped reading, as `head` does."

    @property
    def word(self) -> str:
        """done, mistake, ..."""
        return self.name.lower().replace("_", " ")


class NotAllWell(HqltError):
    """Everything was done, and this is what did not go well."""


def ending(act: Callable[[], Any]) -> int:
    """The number that this ends with; an error of the lab, of the disk or of one's own part is a sentence."""
    try:
        act()
        sys.stdout.flush()
        return Exit.DONE
    except SystemExit as end:
        return pacified() if isinstance(end.__context__, BrokenPipeError) else number_of(end)
    except BrokenPipeError:
        return pacified()
    except KeyboardInterrupt:
        return told("Stopped.", Exit.STOPPED)
    except NotAllWell as error:
        return told(str(error), Exit.NOT_ALL_WELL)
    except HqltError as error:
        return told(str(error), Exit.MISTAKE)
    except OSError as error:
        if error.errno not in (*FULL, *CLOSED, *FILES):
            raise
        return told(sentence(error), Exit.MISTAKE)
    except Exception as error:
        if (blame := blamed(error)) is None:
            raise
        return told(str(blame), Exit.MISTAKE)


def told(words: str, code: Exit) -> Exit:
    print(scrubbed(words), file=sys.stderr)
    return code


def sentence(error: OSError) -> str:
    """A disk that is full or closed, or a file that is not what it should be."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in FULL:
        return f"{where}{error.strerror}. What was written before is safe; the same command goes on."
    if error.errno in CLOSED:
        return f"{where}{error.strerror}. Name a place that is open to you: --runs, --into or --save."
    return f"{where}{error.strerror}."


def number_of(end: SystemExit) -> int:
    """What typer ended with; what it printed may still meet a closed pipe, and of Ctrl-C it says nothing."""
    if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
        return told("Stopped. The same command begins again, or goes on from what was kept.", Exit.STOPPED)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return pacified()
    return end.code if isinstance(end.code, int) else Exit.DONE if end.code is None else Exit.MISTAKE


def pacified() -> Exit:
    """Nobody reads any more: let nothing try to write when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.UNREAD
