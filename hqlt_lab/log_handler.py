"""Log handler for the processes that hqlt_lab starts: the `hqlt` command, workers, ranks of a multi-device cell.

Every module logs to `logging.getLogger(__name__)`, below the logger "hqlt_lab". Importing hqlt_lab configures nothing:
a program that uses it as a library decides with the standard `logging` module what is shown.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hqlt_lab.redact import redact_secrets

PACKAGE_LOGGER = logging.getLogger("hqlt_lab")


class StderrHandler(logging.Handler):
    """Write the message of a record to standard error, with secrets masked.

    `sys.stderr` is looked up for each record, because live displays, tests and workers replace it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.style_line(redact_secrets(self.format(record)), record.levelno) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)

    def style_line(self, line: str, level: int) -> str:
        """Return the line as it is written; subclasses may add colors."""
        return line


@contextmanager
def log_to_stderr(level: int, handler: logging.Handler | None = None) -> Iterator[None]:
    """Write the package's records of at least this level to standard error, and nowhere else, until the end."""
    handler = handler or StderrHandler()
    previous_level, previous_propagate = PACKAGE_LOGGER.level, PACKAGE_LOGGER.propagate
    PACKAGE_LOGGER.setLevel(level)
    # libraries such as Ray may have configured the root logger, which would write every line twice
    PACKAGE_LOGGER.propagate = False
    PACKAGE_LOGGER.addHandler(handler)
    try:
        yield
    finally:
        PACKAGE_LOGGER.removeHandler(handler)
        PACKAGE_LOGGER.setLevel(previous_level)
        PACKAGE_LOGGER.propagate = previous_propagate
