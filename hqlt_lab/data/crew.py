"""Processes that tokenise: each loads the tokenizer once, then makes piece after piece.

They end with the one who started them, also where that one was killed: a pipe that breaks tells them.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.data.encoders.choose import Encoder, load_encoder
from hqlt_lab.data.pieces import Tally, keep, piece_file, tally_of, tokenise
from hqlt_lab.data.sources._base import Document
from hqlt_lab.errors import StoreError


class Craft(NamedTuple):
    """What every process must know."""

    folder: Path
    tokenizer: str
    valid: float
    test: float


def made(pieces: Iterable[tuple[int, list[Document]]], craft: Craft, workers: int) -> Iterator[Tally]:
    """Make pieces, and tell in their order what each is made of.  No more wait in memory than keep everyone busy."""
    waiting: deque[Future[Tally]] = deque()
    # spawned, not forked: the libraries that read have threads, which a fork would leave stuck
    with ProcessPoolExecutor(workers, get_context("spawn"), start, (craft,)) as pool:
        try:
            for number, documents in pieces:
                waiting.append(pool.submit(make, number, documents))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise StoreError(
                f"{craft.folder}: a process that tokenises was ended from outside, maybe for lack of memory. "
                "The same command goes on; --workers with a smaller number needs less."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


ours: tuple[Craft, Encoder]  # in each process, what `start` was given


def start(craft: Craft) -> None:
    """Get ready, in a process of the crew."""
    global ours
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
    threading.Thread(target=end_with_parent, daemon=True).start()
    ours = craft, load_encoder(craft.tokenizer, craft.folder / "tokenizer")


def end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def make(number: int, documents: list[Document]) -> Tally:
    """Tokenise a piece and keep it, unless that was done before."""
    craft, encoder = ours
    file = piece_file(craft.folder / "work", number)
    if done := tally_of(file):
        return done
    piece = tokenise(documents, encoder, craft.valid, craft.test)
    keep(file, piece)
    return piece.tally
