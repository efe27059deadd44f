"""The command line: verbs to functions.  It parses and prints; what it prints is decided elsewhere.

Nothing heavy is imported before a verb is chosen, so `hqlt --help` answers at once.
"""

import sys


def main() -> None:
    """The `hqlt` command: an error of the lab is a sentence on stderr, anything else a traceback."""
    from hqlt_lab.cli.app import app
    from hqlt_lab.errors import HqltError

    try:
        app()
    except HqltError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
