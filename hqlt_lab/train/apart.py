"""A run in a process of its own, in a new session: Lightning repeats the command line once per device, or srun does.

The process tells its metrics on its standard output, a line of JSON each, and ends when its standard input does: so it
does not outlive whoever asked for it, not even one that was killed.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import NoRoom
from hqlt_lab.registry import OtherCode
from hqlt_lab.train.claim import FILE, claim
from hqlt_lab.train.failure import Passing
from hqlt_lab.train.interrupt import Interrupted, ignored
from hqlt_lab.train.outcome import Outcome, read_outcome
from hqlt_lab.train.progress import Record
from hqlt_lab.train.started import srun, without_a_place

Process: TypeAlias = "subprocess.Popen[str]"
LOG = "process.log"
FAILURE = "failure.json"  # why a process that is not the first has failed
# what the process calls an end that is no fault of the cell
NO_FAULT: dict[str, type[Exception]] = {"interrupted": Interrupted, "full": NoRoom, "changed": OtherCode}
STOPPED = "The run was stopped. Run the same command again to go on."
PATIENCE = 30.0  # seconds between asking a process to save and ending it


def fit_apart(cell: Cell, folder: Path, record: Record) -> Outcome:
    """Train and test a cell in its own process; the same promises as `fit`."""
    claim(folder, cell)
    if stored := read_outcome(folder):
        return stored
    with (folder / LOG).open("a") as log:
        process = begin(cell, folder, log)
        try:
            told = listen(process, record)
        except KeyboardInterrupt:
            with ignored(signal.SIGTERM):  # it may come again: SLURM tells every process, and a coordinator its workers
                told = {"interrupted": STOPPED} | let_go(process, record)
        finally:
            end(process)
    return outcome_in(folder, told)


def begin(cell: Cell, folder: Path, log: TextIO) -> Process:
    """Start the process, free of the ranks that this one may have."""
    (folder / FAILURE).unlink(missing_ok=True)
    everywhere = srun(cell.trainer)
    command = [*everywhere, sys.executable, "-m", "hqlt_lab.train.cell", str(folder / FILE), "--leash"]
    free, pipe = without_a_place(os.environ, slurm=bool(everywhere)), subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=free, start_new_session=True)


def listen(process: Process, record: Record) -> dict[str, Any]:
    """Hand on the metrics until the process ends; what else it says is why."""
    assert process.stdout is not None
    told: dict[str, Any] = {}
    for line in process.stdout:
        if not line.endswith("\n"):  # torn, by whatever ended the process
            break
        told = json.loads(line)
        if "metrics" in told:
            record(told["step"], told["metrics"])
    return told


def let_go(process: Process, record: Record) -> dict[str, Any]:
    """Release the leash, so that the run saves and ends by itself, and hear it out."""
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    return listen(process, record)


def end(process: Process) -> None:
    """Leave nothing behind: release the leash, wait for a while, then end what is left of the group."""
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=PATIENCE)
    kill(process.pid)
    process.wait()


def kill(group: int) -> None:
    """End a whole group of processes, if it is still there."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def outcome_in(folder: Path, told: dict[str, Any]) -> Outcome:
    """What the process left behind."""
    if stored := read_outcome(folder):
        return stored
    if not told.get("permanent"):  # perhaps it heard no more than that another process is gone
        told |= failure_of_another(folder)
    for word, kind in NO_FAULT.items():
        if word in told:
            raise kind(told[word])
    if "why" in told:
        raise (TrainingError if told["permanent"] else Passing)(told["why"])
    raise Passing(f"Its process ended without a word; {folder / LOG} has what it printed.")


def failure_of_another(folder: Path) -> dict[str, Any]:
    """What a process that is not the first has left of why it failed."""
    with suppress(OSError, ValueError):
        told: dict[str, Any] = json.loads((folder / FAILURE).read_text())
        return told
    return {}
