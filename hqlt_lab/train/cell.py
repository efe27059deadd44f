"""The process that trains one cell on several devices: python -m hqlt_lab.train.cell FOLDER/cell.json

Lightning repeats this command for every device; on several machines srun starts it.  The first process tells metrics
and how it ended as lines of JSON; whatever else is printed goes to standard error.  With --leash it ends when its
standard input does.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.files import with_room, write
from hqlt_lab.secrets import scrubbed, tell_no_secret
from hqlt_lab.train.apart import FAILURE, NO_FAULT, PATIENCE, kill
from hqlt_lab.train.failure import failure_of
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.started import first

MOMENT = 3.0  # seconds for the first process, which may have the same complaint and is the one that is heard


def main(file: Path, leashed: bool) -> int:
    """Train the cell in this file, in the folder of the file."""
    lines = own_output()
    if leashed and first():
        threading.Thread(target=end_with_input, daemon=True).start()
    from hqlt_lab.train.fit import fit_here  # slow to import, and the leash is already on

    def tell(**what: object) -> None:
        print(json.dumps(what), file=lines, flush=True)

    try:
        with with_room(file.parent):
            fit_here(cell_from(json.loads(file.read_text())), file.parent, lambda step, m: tell(step=step, metrics=m))
    except Exception as error:
        # ours are sentences already; of all others somebody will want to know where they arose
        print(scrubbed(str(error) if isinstance(error, HqltError) else traceback.format_exc()), file=sys.stderr)
        if first():
            tell(**said(error))
            return 1
        return 0 if isinstance(error, Interrupted) else failed_alone(file.parent, error)
    return 0


def said(error: Exception) -> dict[str, object]:
    """How a run ended, for whoever waits for it."""
    for word, kind in NO_FAULT.items():
        if isinstance(error, kind):
            return {word: str(error)}
    return failure_of(error)._asdict()


def failed_alone(folder: Path, error: Exception) -> int:
    """The code of a process that is not the first: Lightning or srun then ends the others, who would wait for it.

    Those only see that it is gone; why, it leaves in the folder.
    """
    with suppress(OSError):
        write(folder / FAILURE, json.dumps(said(error)))
    time.sleep(MOMENT)
    return 1


def own_output() -> TextIO:
    """Standard output for our lines alone; what others print joins standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


def end_with_input() -> None:
    """Wait until whoever started this process is gone, then save and end, with all processes of the run."""
    sys.stdin.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(PATIENCE)
    kill(os.getpgid(0))


if __name__ == "__main__":
    sys.excepthook = tell_no_secret
    sys.exit(main(Path(sys.argv[1]), "--leash" in sys.argv))
