"""The command line: verbs to functions.  It parses and prints; what it prints is decided elsewhere.

Nothing heavy is imported before a verb is chosen, so `hqlt --help` answers at once.

screen       where it speaks: results on standard output, everything else on standard error
exits        how it ends: the numbers that scripts see
options      what several verbs share
completion   what a shell offers when Tab is pressed; bash: how that one breaks words
"""

import sys


def main() -> None:
    """The `hqlt` command."""
    from hqlt_lab.cli.app import app
    from hqlt_lab.cli.bash import whole_words
    from hqlt_lab.cli.exits import ending
    from hqlt_lab.secrets import tell_no_secret

    sys.excepthook = tell_no_secret
    with whole_words():
        sys.exit(ending(lambda: app(prog_name="hqlt")))
