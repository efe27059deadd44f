"""The command line: verbs to functions.  It parses and prints; what it prints is decided elsewhere.

Nothing heavy is imported before a verb is chosen, so `hqlt --help` answers at once.

screen       where it speaks: results on standard output, everything else on standard error
exits        how it ends: the numbers that scripts see
options      what several verbs share
completion   what a shell offers when Tab is pressed; bash: how that one breaks words
"""

import atexit
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def main() -> None:
    """The `hqlt` command."""
    from hqlt_lab.cli.app import app
    from hqlt_lab.cli.bash import whole_words
    from hqlt_lab.cli.exits import ending
    from hqlt_lab.secrets import tell_no_secret

    sys.excepthook = tell_no_secret
    with whole_words(), seldom_collected():
        sys.exit(ending(lambda: app(parts_first(sys.argv[1:]), prog_name="hqlt")))


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Cycles are looked for seldom: a program that looks and ends has few, and torch brings half a million objects."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000)
    atexit.register(not_once_more)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def not_once_more() -> None:
    """At the very end Python would look for cycles in everything; what then is not found, triton calls a leak."""
    if "triton" not in sys.modules:
        gc.freeze()


def parts_first(words: Sequence[str]) -> list[str]:
    """--with belongs to `hqlt`, before the verb; behind it, people write it too, and mean the same."""
    first, rest, left = list[str](), list[str](), list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word == "--with":
            if not left:
                return [word]  # typer then says that a file is missing
            first += [word, left.pop(0)]
        else:
            (first if word.startswith("--with=") else rest).append(word)
    return [*first, *rest, *left]
