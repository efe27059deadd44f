"""What a Ray task does: look whether this machine is fit for the order, then train the cell in the cell's folder.

The verdict is left in the folder (`study.post`); Ray hears no more than that the task is over, so that nothing is lost
with a machine that dies in this moment.  Ray uses a process for one task after the other, unless they need GPUs: what
went wrong may have left something behind in it, so after a failure it leaves.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hqlt_lab.files import NoRoom, with_room
from hqlt_lab.study.post import Post
from hqlt_lab.study.worker import Message, attempt
from hqlt_lab.track.provenance import lab

LISTEN = 0.5  # seconds between two looks for orders
LOOK = 5.0  # seconds that a network disk gets to show what was just written
SHARED = "All machines must see it under the same path: use a shared disk (`--runs /shared/runs`)."


def work(order: dict[str, Any]) -> str:
    """Train a cell; what of this machine stood in the way, or nothing."""
    post = Post(Path(order["folder"]), order["token"])
    if obstacle := next(obstacles(order, post), ""):
        return f"launcher: The machine {socket.gethostname()} {obstacle}"
    os.chdir(order["here"])
    use_threads(order["threads"])
    try:
        with with_room(post.folder):
            return trained(order, post)
    except NoRoom as error:  # for a verdict either
        return str(error)


def trained(order: dict[str, Any], post: Post) -> str:
    """The same, where there is room to say how it ended."""
    post.answer("taken", {"machine": socket.gethostname(), "process": os.getpid()})
    with Ear(post) as ear:
        word, told = attempt(order, ignore, ear.given_up.is_set)
    if word == "blocked":
        return str(told["why"])
    post.answer(word, told)
    if word == "failed":
        os._exit(1)
    return ""


def ignore(message: Message) -> None:
    """Points are in the folder, where the coordinator reads them."""


def obstacles(order: dict[str, Any], post: Post, patience: float = LOOK) -> Iterator[str]:
    """Why this machine would do something else than was asked, each in a sentence."""
    until = time.monotonic() + patience
    while "train" not in post.orders():
        if time.monotonic() > until:
            yield f"does not see the folder {post.folder} of a cell. {SHARED}"
            return
        time.sleep(0.1)
    for path in (order["here"], *order["with"]):
        if not Path(path).exists():
            yield f"does not see {path}, where the study was started or a part of it comes from. {SHARED}"
    if lab() != order["lab"]:
        yield "has another hqlt_lab than the one that runs the study. Install the same on all machines."


def use_threads(threads: int) -> None:
    """As many as the task has cores, here and in the processes of a cell on several devices.

    All libraries are loaded here, which takes seconds in a new process: before the cell's time begins.
    """
    import torch

    import hqlt_lab.train.fit  # noqa: F401

    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)


class Ear(threading.Thread):
    """Listens to the coordinator while a cell is trained."""

    def __init__(self, post: Post) -> None:
        super().__init__(daemon=True)
        self.post, self.given_up, self.over = post, threading.Event(), threading.Event()
        self.talking = threading.Lock()

    def run(self) -> None:
        while not self.over.wait(LISTEN):
            with suppress(OSError):  # a network disk may be away for a while
                words = self.post.orders()
                if "give up" in words:
                    self.given_up.set()
                if "stop" in words:
                    self.stop()
                    return

    def stop(self) -> None:
        """As a terminal or a batch system would, but never once the cell is over: it would hit the next one."""
        with self.talking:
            if not self.over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> "Ear":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.talking:
            self.over.set()
