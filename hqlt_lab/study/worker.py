"""A worker: a warm process that trains one cell after another, and ends when its coordinator does.

It hears ("train", order) and ("give up", {}) and says, always for the cell it is at:

    ready                           waiting for a cell
    point(step, metrics)            of its curves, which it also appends to the cell's folder
    ended(outcome)                  done or diverged
    pruned | interrupted            asked to stop, by "give up" or by SIGTERM
    failed(why, permanent)          the traceback is in the cell's log; the worker leaves, and another takes its place
    blocked(why)                    no fault of the cell: a full disk, or a part's file that is another one now
"""

import gc
import os
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from hqlt_lab.errors import listed
from hqlt_lab.experiment.cell import Cell, cell_from
from hqlt_lab.files import NoRoom, is_full, with_room
from hqlt_lab.registry import AGAIN, OtherCode, hand_on, included
from hqlt_lab.secrets import scrubbed
from hqlt_lab.track.provenance import code_of
from hqlt_lab.track.spool import Spool
from hqlt_lab.train.failure import failure_of

LOG = "log.txt"
LEAVING = ("failed", "blocked")  # words after which a worker ends: what went wrong may have left something behind in it
GLANCE = 0.25  # seconds: what is watched need not be told more often; the folder gets every point
Message = tuple[str, dict[str, Any]]


class Pruned(Exception):
    """The cell is not worth going on with."""


class Ear(threading.Thread):
    """Listens to the coordinator; when there is none any more, nothing of the worker stays."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(daemon=True)
        self.pipe, self.orders, self.given_up = pipe, queue.Queue[dict[str, Any]](), threading.Event()

    def run(self) -> None:
        try:
            while True:
                word, told = self.pipe.recv()
                if word == "train":
                    self.given_up.clear()
                    self.orders.put(told)
                else:
                    self.given_up.set()
        except (EOFError, OSError):
            os._exit(1)


def main(pipe: Connection, threads: int) -> None:
    """What the process does."""
    os.setsid()  # Ctrl-C in the terminal is for the coordinator
    ear = Ear(pipe)
    ear.start()
    import torch

    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes of a cell on several devices
    word = ""
    while word not in LEAVING:
        pipe.send(("ready", {}))
        word, told = attempt(ear.orders.get(), lambda message: glance(pipe, message), ear.given_up.is_set)
        pipe.send((word, told))
        if torch.cuda.is_initialized():
            gc.collect()  # what Lightning leaves behind in circles holds memory that the next cell needs
            torch.cuda.empty_cache()


def glance(pipe: Connection, message: Message) -> None:
    """Tell a point, if anybody takes it: a coordinator that waits for its database must not make training wait."""
    room = select.poll()
    room.register(pipe, select.POLLOUT)
    if room.poll(0):
        pipe.send(message)


def order_for(cell: Cell, folder: Path, attempt: int, gpus: str) -> dict[str, Any]:
    """What a worker is told: the cell, its folder, which GPUs it sees, and the parts from outside as they are now."""
    order = {"cell": cell.as_dict(), "folder": str(folder), "attempt": attempt, "gpus": gpus}
    return order | {"with": [str(file) for file in included()], "code": code_of(cell)}


def attempt(order: dict[str, Any], tell: Callable[[Message], None], given_up: Callable[[], bool]) -> Message:
    """Train a cell, and say how it ended; where the machine is in the way, that the cell is not to blame.

    Points are told as they come, and each is a moment to be given up at.
    """
    folder = Path(order["folder"])
    try:
        with with_room(folder):
            return attempted(order, folder, tell, given_up)
    except (NoRoom, OtherCode) as error:
        return "blocked", {"why": str(error)}


def attempted(
    order: dict[str, Any], folder: Path, tell: Callable[[Message], None], given_up: Callable[[], bool]
) -> Message:
    """The same, as long as nothing is in the way."""
    cell = cell_from(order["cell"])
    folder.mkdir(parents=True, exist_ok=True)
    if order["gpus"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = order["gpus"]
    spool: Spool | None = None
    told = 0.0

    def record(step: int, metrics: dict[str, float]) -> None:
        nonlocal spool, told
        # not before `fit` is alone here: one who was taken for dead may still write
        spool = spool or opened.enter_context(Spool(folder))
        spool.add(step, metrics)
        if cell.measure.select in metrics or time.monotonic() - told > GLANCE:
            tell(("point", {"step": step, "metrics": metrics}))
            told = time.monotonic()
        if given_up():
            raise Pruned

    title = f"attempt {order['attempt']}, {time.strftime('%Y-%m-%d %H:%M:%S')}"
    with output_into(folder / LOG, title), stoppable(), ExitStack() as opened:
        try:
            load_parts(order["with"], order["code"], cell)
            from hqlt_lab.train.fit import fit
            from hqlt_lab.train.interrupt import Interrupted

            try:
                return "ended", asdict(fit(cell, folder, record))
            except Pruned:
                return "pruned", {}
            except (Interrupted, KeyboardInterrupt) as stop:
                print(stop)
                return "interrupted", {}
        except (NoRoom, OtherCode):
            raise
        except Exception as error:
            if is_full(error):
                raise
            print(scrubbed(traceback.format_exc()), file=sys.stderr, end="")
            return "failed", failure_of(error)._asdict()


def load_parts(files: Sequence[str], code: Mapping[str, str], cell: Cell) -> None:
    """Include the files from outside; what they say must be what the coordinator has written into the ledger."""
    try:
        hand_on([Path(file) for file in files])
        now = code_of(cell)
    except Exception as error:
        raise OtherCode(f"A part could be loaded when the run began, and now cannot be. {error} {AGAIN}") from error
    if changed := [name for name, source in code.items() if name != "lab" and now.get(name) != source]:
        raise OtherCode(f"The file of {listed(changed)} has changed since the run began. {AGAIN}")


@contextmanager
def output_into(file: Path, title: str) -> Iterator[None]:
    """Whatever is printed, by Python or below it, is appended to the file."""
    before = os.dup(1), os.dup(2)
    with file.open("a") as log:
        print(f"--- {title}", file=log, flush=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for place, handle in enumerate(before, 1):
                os.dup2(handle, place)
                os.close(handle)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM where `fit` does not listen itself: while it prepares, or waits for processes of its own."""
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("The run was stopped before its first step.")
