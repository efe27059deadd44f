"""Rich consoles for standard output and standard error, and the log handler of the command line.

Every line that a command writes is one of these:

    the requested result       `console`           standard output: tables, reports, JSON, the commands to run next
    progress                   `stderr_console`    standard error: bars, live tables, or lines in their place
    remarks                    `logger.info`       standard error
    warnings and errors        `logger.warning`, `logger.error`    standard error

The option -q hides progress and remarks.  It never hides the result, a warning or an error.

On a terminal both have its width, colors and moving bars.  In a pipe or a file the output is plain: no colors, no bars,
no line is wrapped or cropped.  NO_COLOR removes colors on a terminal, FORCE_COLOR adds them in a pipe, TERM=dumb
disables everything that moves, COLUMNS sets the width.
"""

import logging
import os
import sys

from rich.console import Console
from rich.markup import escape, render
from rich.table import Table

from hqlt_lab.log_handler import StderrHandler
from hqlt_lab.redact import redact_secrets

UNLIMITED_WIDTH = 10_000  # wider than any line, so that programs and grep get unbroken lines


def make_console(use_stderr: bool = False) -> Console:
    """Return a console for standard output or standard error that is plain unless it is a terminal."""
    is_terminal = (sys.stderr if use_stderr else sys.stdout).isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else UNLIMITED_WIDTH
    return Console(stderr=use_stderr, width=width, force_interactive=None if is_terminal else False)


console = make_console()
stderr_console = make_console(use_stderr=True)


def print_table(table: Table) -> None:
    """Print a table at its full width: a terminal may wrap its lines, but nothing is cropped.

    Title and caption are printed separately, because they may be wider than the table.
    """
    title, table.title, caption, table.caption = table.title, None, table.caption, None
    if title:
        console.print(title, style="italic", soft_wrap=True)
    min_width = console.measure(table, options=console.options.update(width=UNLIMITED_WIDTH)).minimum
    console.print(table, width=max(console.width, min_width), crop=False, no_wrap=False)
    if caption:
        console.print(caption, style="dim", soft_wrap=True)


def print_caveat(message: str) -> None:
    """Print a caveat that is part of the result in yellow, with secrets masked."""
    console.print(f"[yellow]{escape(redact_secrets(message))}[/yellow]", soft_wrap=True)


def remove_markup(text: str) -> str:
    """Return text with rich markup as plain text, for a log message."""
    return render(text).plain


class ColoredHandler(StderrHandler):
    """Log handler of the command line: warnings and errors are yellow on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.console = make_console(use_stderr=True)  # `stderr_console` discards everything after -q

    def style_line(self, line: str, level: int) -> str:
        if level < logging.WARNING:
            return line
        # captured and not printed: a live display replaces sys.stderr, which a console does not write to
        with self.console.capture() as capture:
            self.console.print(f"[yellow]{escape(line)}[/yellow]", soft_wrap=True, end="")
        return capture.get()
