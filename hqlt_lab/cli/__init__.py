"""The `hqlt` command line: parses arguments, calls `hqlt_lab.api` and prints the result.

Heavy libraries are imported only inside the function of a command, so that `hqlt --help` is fast.

app          the typer application with all commands
commands     one file per command or group of commands
terminal     consoles, exit codes, shared options, tables, progress bars, shell completion
templates    the files that `hqlt new` writes
"""

import sys
from collections.abc import Sequence

from hqlt_lab.process_settings import reduce_gc_frequency


def main() -> None:
    """Entry point of the `hqlt` command."""
    from hqlt_lab.cli.app import app
    from hqlt_lab.cli.terminal.completion import rejoin_bash_words
    from hqlt_lab.cli.terminal.exit_codes import run_to_exit_code
    from hqlt_lab.redact import print_redacted_traceback

    sys.excepthook = print_redacted_traceback
    with rejoin_bash_words(), reduce_gc_frequency():
        sys.exit(run_to_exit_code(lambda: app(move_global_options_first(sys.argv[1:]), prog_name="hqlt")))


LOG_OPTIONS = ("-v", "--verbose", "-q", "--quiet")


def move_global_options_first(arguments: Sequence[str]) -> list[str]:
    """Move the options of `hqlt` itself before the command, because they are accepted behind the command too."""
    global_options, other_arguments, remaining = list[str](), list[str](), list(arguments)
    while remaining and remaining[0] != "--":
        argument = remaining.pop(0)
        if argument == "--with":
            if not remaining:
                return [argument]  # typer then reports that a file is missing
            global_options += [argument, remaining.pop(0)]
        else:
            is_global = argument.startswith("--with=") or argument in LOG_OPTIONS
            (global_options if is_global else other_arguments).append(argument)
    return [*global_options, *other_arguments, *remaining]
