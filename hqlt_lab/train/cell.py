"""The process that trains one cell on several devices: python -m hqlt_lab.train.cell FOLDER/cell.json

Lightning repeats this command for every device.  The first process tells metrics and how it ended as lines of JSON;
whatever else is printed goes to standard error.  With --leash it ends when its standard input does.
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
from hqlt_lab.train.apart import PATIENCE, kill
from hqlt_lab.train.interrupt import Interrupted


def main(file: Path, leashed: bool) -> int:
    """Train the cell in this file, in the folder of the file."""
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    lines = own_output()
    if leashed and first:
        threading.Thread(target=end_with_input, daemon=True).start()
    from hqlt_lab.train.fit import fit_here  # slow to import, and the leash is already on

    def tell(**what: object) -> None:
        print(json.dumps(what), file=lines, flush=True)

    try:
        fit_here(cell_from(json.loads(file.read_text())), file.parent, lambda step, m: tell(step=step, metrics=m))
    except HqltError as error:
        if first:
            tell(**{"interrupted" if isinstance(error, Interrupted) else "error": str(error)})
            return 1
    return 0


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
    sys.exit(main(Path(sys.argv[1]), "--leash" in sys.argv))
