"""Exit codes of `hqlt`, and the mapping from exceptions to them.

After 1 and 2 nothing was printed to standard output; after 3 everything possible was done and the output is complete.
"""

import errno
import logging
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from hqlt_lab.cli.terminal.console import ColoredHandler
from hqlt_lab.errors import HqltError, list_issues
from hqlt_lab.files import DISK_FULL_ERRNOS
from hqlt_lab.log_handler import log_to_stderr
from hqlt_lab.registry import find_failing_component

logger = logging.getLogger(__name__)

PERMISSION_ERRNOS = (errno.EROFS, errno.EACCES, errno.EPERM)
PATH_ERRNOS = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


class ExitCode(IntEnum):
    """An exit code with its meaning, a sentence for docs/reference/command_line.md."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "ExitCode":
        member = int.__new__(cls, number)
        member._value_, member.meaning = number, meaning
        return member

    SUCCESS = 0, "The command succeeded."
    ERROR = (
        1,
        "A file, name or value is invalid, or a file cannot be read or written. Standard error has the message.",
    )
    USAGE_ERROR = 2, "Unknown or missing command, argument or option, or an invalid value of an option."
    PARTIAL_FAILURE = (
        3,
        "The command completed, but some cells failed, all cells of an arm diverged, lm-eval tasks could not be run, "
        "or components or data failed a check.",
    )
    INTERRUPTED = 130, "Stopped by Ctrl-C or SIGTERM. The same command resumes."
    BROKEN_PIPE = 141, "The reader of standard output closed the pipe, as `head` does."

    @property
    def label(self) -> str:
        """Return the name for `hqlt --help`: "success", "partial failure", ..."""
        return self.name.lower().replace("_", " ")


class PartialFailure(HqltError):
    """The command did everything it could, but some results are failures."""


def run_to_exit_code(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code.

    Errors of the lab, of the file system and of user components are printed as one sentence; others keep their
    traceback.
    """
    try:
        command()
        sys.stdout.flush()
        return ExitCode.SUCCESS
    except SystemExit as system_exit:
        if isinstance(system_exit.__context__, BrokenPipeError):
            return silence_stdout()
        return code_from_system_exit(system_exit)
    except BrokenPipeError:
        return silence_stdout()
    except KeyboardInterrupt:
        return fail("Stopped.", ExitCode.INTERRUPTED)
    except PartialFailure as error:
        return fail(str(error), ExitCode.PARTIAL_FAILURE)
    except HqltError as error:
        return fail(str(error), ExitCode.USAGE_ERROR if is_option_error(error) else ExitCode.ERROR)
    except OSError as error:
        if error.errno not in (*DISK_FULL_ERRNOS, *PERMISSION_ERRNOS, *PATH_ERRNOS):
            raise
        return fail(describe_os_error(error), ExitCode.ERROR)
    except Exception as error:
        if (component_failure := find_failing_component(error)) is None:
            raise
        return fail(str(component_failure), ExitCode.ERROR)


def is_option_error(error: HqltError) -> bool:
    """Return whether all mistakes are in values of options: of `--only`, of `--set`, ..., and not in a file."""
    return all(
        issue.source.startswith("--") or (not issue.source and issue.path.startswith("--"))
        for issue in list_issues(error)
    )


def fail(message: str, code: ExitCode) -> ExitCode:
    """Log an error message and return the exit code.  The log handler of the command is closed by now."""
    with log_to_stderr(logging.ERROR, ColoredHandler()):
        logger.error(message)
    return code


def describe_os_error(error: OSError) -> str:
    """Return a sentence for a full disk, a missing permission or a wrong path."""
    prefix = f"{error.filename}: " if error.filename else ""
    if error.errno in DISK_FULL_ERRNOS:
        return f"{prefix}{error.strerror}. Files written before are intact. Run the same command again to resume."
    if error.errno in PERMISSION_ERRNOS:
        return f"{prefix}{error.strerror}. Choose a folder that you can write to, with --runs, --into or --save."
    return f"{prefix}{error.strerror}."


def code_from_system_exit(system_exit: SystemExit) -> int:
    """Return the exit code of a SystemExit raised by typer.

    Typer turns Ctrl-C into a SystemExit without a message, and its output may still hit a closed pipe here.
    """
    if isinstance(getattr(system_exit.__context__, "__cause__", None), KeyboardInterrupt):
        return fail("Stopped. Run the same command again to resume or to start over.", ExitCode.INTERRUPTED)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return silence_stdout()
    if isinstance(system_exit.code, int):
        return system_exit.code
    return ExitCode.SUCCESS if system_exit.code is None else ExitCode.ERROR


def silence_stdout() -> ExitCode:
    """Redirect standard output to /dev/null, so that Python's flush at exit does not fail on the closed pipe.

    Return the exit code of a broken pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.BROKEN_PIPE
