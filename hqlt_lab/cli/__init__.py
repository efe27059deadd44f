"""The command line: verbs to functions.  It parses and prints; what it prints is decided elsewhere.

Nothing heavy is imported before a verb is chosen, so `hqlt --help` answers at once.
"""

import errno
import sys


def main() -> None:
    """The `hqlt` command: an error of the lab or of the disk is a sentence on stderr, anything else a traceback."""
    from hqlt_lab.cli.app import app
    from hqlt_lab.errors import HqltError

    try:
        app()
    except HqltError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"{where}{error.strerror}. What was written before is safe; the same command goes on.", file=sys.stderr)
        sys.exit(1)
