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
from pathlib import Path
from typing import TextIO

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.files import NoRoom, with_room
from hqlt_lab.secrets import tell_no_secret
from hqlt_lab.train.apart import PATIENCE, kill
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.started import first

MOMENT = 3.0  # seconds for the first process, which may have the same complaint and is the one that is heard

SAID: dict[type, str] = {Interrupted: "interrupted", NoRoom: "full"}  # what a line of JSON calls an error


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
    except HqltError as error:
        if first():
            tell(**{SAID.get(type(error), "error"): str(error)})
            return 1
        print(error, file=sys.stderr)
        return 0 if isinstance(error, Interrupted) else failed_alone()
    return 0


def failed_alone() -> int:
    """The code of a process that is not the first: srun then ends the others, who would wait for it."""
    if "SLURM_PROCID" not in os.environ:
        return 0  # Lightning's own processes are ended with the first
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
