"""Where the command line speaks.

`console` is standard output: what was asked for.  `aside` is standard error: progress, and what is said besides.
On a terminal both are as wide as it is, with colours and bars that move.  Elsewhere, in a pipe or a file, they are
plain: no colours, no bars, no line broken or cut.  NO_COLOR takes the colours off a terminal, FORCE_COLOR puts them
into a pipe, TERM=dumb stops whatever moves, COLUMNS sets the width.
"""

import os
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hqlt_lab.secrets import scrubbed

UNBROKEN = 10_000  # wider than any line: programs and grep want them whole


def screen(stderr: bool = False) -> Console:
    """A console for one of the two."""
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if watched or "COLUMNS" in os.environ else UNBROKEN
    return Console(stderr=stderr, width=width, force_interactive=None if watched else False)


console = screen()
aside = screen(stderr=True)


def whole(table: Table) -> None:
    """Print a table as wide as it is: a terminal may break its lines, but nothing is cut off.

    What stands above and below it may be wider.
    """
    above, table.title, below, table.caption = table.title, None, table.caption, None
    if above:
        console.print(above, style="italic", soft_wrap=True)
    least = console.measure(table, options=console.options.update(width=UNBROKEN)).minimum
    console.print(table, width=max(console.width, least), crop=False, no_wrap=False)
    if below:
        console.print(below, style="dim", soft_wrap=True)


def warn(sentence: str, out: Console = console) -> None:
    """Something to be careful about."""
    out.print(f"[yellow]{escape(scrubbed(sentence))}[/yellow]", soft_wrap=True)
