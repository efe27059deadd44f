"""The workers of one machine: hired from a warm server, given cells, replaced when they are lost.

Python's forkserver imports the libraries once; a worker is then a fork of it, which takes hundredths of a second
instead of ten seconds.  Nothing in it touches a GPU: each worker sees those of its cell alone.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study import worker
from hqlt_lab.study.hands import PATIENCE, STILLBORN, Event
from hqlt_lab.study.machine import assign, share
from hqlt_lab.study.member import Member, cause, visible
from hqlt_lab.train.interrupt import ignored

LOST = (EOFError, OSError)


def warm_up() -> None:
    """Let the server import its libraries, while others prepare what it will be asked for."""
    forkserver.set_forkserver_preload(["hqlt_lab.study.warm"])
    with ignored(signal.SIGINT):  # which the server inherits: in a terminal it would die of it while it imports
        forkserver.ensure_running()


class Crew:
    """Up to so many workers.  `gpus_of` says what a cell takes."""

    def __init__(
        self, workers: int, threads: int, gpus: int, gpus_of: Callable[[Cell], float], time_limit: float | None
    ) -> None:
        self.workers, self.threads, self.gpus_of, self.time_limit = workers, threads, gpus_of, time_limit
        self.free = [Fraction(1)] * gpus
        self.members: list[Member] = []
        self.stillborn = 0
        self.context = multiprocessing.get_context("forkserver")

    @property
    def busy(self) -> list[str]:
        """The cells under way."""
        return [member.key for member in self.members if member.key is not None]

    def room_for(self, cell: Cell) -> bool:
        """Whether it could begin now."""
        return len(self.busy) < self.workers and assign(share(self.gpus_of(cell)), self.free) is not None

    def start(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Give a cell to someone; there must be room for it."""
        need = share(self.gpus_of(cell))
        gpus = assign(need, self.free)
        assert gpus is not None
        member = self.idle_with(gpus)
        member.key, member.need, member.gpus, member.since = key, need, gpus, time.monotonic()
        for index in gpus:
            self.free[index] -= min(need, Fraction(1))
        order = worker.order_for(cell, folder, attempt, visible(gpus))
        with suppress(*LOST):  # whoever died in this moment is found by `events`
            member.pipe.send(("train", order))

    def idle_with(self, gpus: tuple[int, ...]) -> Member:
        """Someone who is free and has seen no other GPUs; once a process has, it cannot unsee them."""
        idle = [member for member in self.members if member.key is None and not member.fate]
        for member in idle:
            if member.gpus in (None, gpus):
                return member
        for member in idle[: max(0, len(self.members) + 1 - self.workers)]:
            self.dismiss(member)
        return self.hire()

    def hire(self) -> Member:
        """One more worker."""
        warm_up()
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=worker.main, args=(theirs, self.threads), daemon=True)
        try:
            process.start()
        except LOST as error:
            raise TrainingError(
                "The server from which workers are made has died. Run the same command again."
            ) from error
        theirs.close()
        self.members.append(Member(process, ours))
        return self.members[-1]

    def events(self, timeout: float) -> Iterator[Event]:
        """What happened since the last time, waiting for it as long as allowed."""
        self.end_the_late()
        by_pipe = {member.pipe: member for member in self.members}
        for pipe in wait(list(by_pipe), timeout):
            member = by_pipe[pipe]  # type: ignore[index]
            try:
                word, told = member.pipe.recv()
            except LOST:
                yield from self.lose(member)
                continue
            member.spoke, self.stillborn = True, 0
            if word == "ready" or member.key is None:
                continue
            event = Event(member.key, word, told)
            if word != "point":
                self.release(member)
            if word in worker.LEAVING:  # it leaves by itself
                self.members.remove(member)
                member.pipe.close()
            yield event

    def end_the_late(self) -> None:
        """A worker that takes longer than it may is killed; its pipe then breaks, as if it had died.

        Not one of whom there is news: its cell may be over, and we were late to hear of it.
        """
        for member in self.members:
            late = self.time_limit and member.key and time.monotonic() - member.since > self.time_limit
            if late and not wait([member.pipe], 0):
                member.fate = f"The time limit of {self.time_limit:g} s passed."
                member.process.kill()

    def lose(self, member: Member) -> Iterator[Event]:
        """A worker is gone: say so for its cell."""
        member.process.join(PATIENCE)
        self.members.remove(member)
        member.pipe.close()
        self.stillborn += not member.spoke
        why = member.fate or cause(member.process.exitcode)
        if self.stillborn >= STILLBORN:
            raise TrainingError(
                f"{self.stillborn} workers died before they could begin. {why} If this is a script, put what it does "
                "under `if __name__ == '__main__':`, because workers import it."
            )
        if member.key is not None:
            key = member.key
            self.release(member)
            # a worker that never spoke did not come to its cell, which is not to blame
            yield Event(key, "lost" if member.spoke else "interrupted", {"why": why})

    def release(self, member: Member) -> None:
        """The cell is over: its share of the machine is free again."""
        for index in member.gpus or ():
            self.free[index] += min(member.need, Fraction(1))
        member.key = None

    def give_up(self, key: str) -> None:
        """Ask the worker of a cell to stop; its event will follow."""
        for member in self.members:
            if member.key == key:
                with suppress(*LOST):
                    member.pipe.send(("give up", {}))

    def interrupt(self) -> None:
        """Ask all to save and stop, each of them once; their events will follow."""
        for member in self.members:
            if member.key is not None and member.process.pid and not member.asked:
                member.asked = True
                with suppress(ProcessLookupError):
                    os.kill(member.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Wait for nobody."""
        for member in self.members:
            member.process.kill()

    def dismiss(self, member: Member) -> None:
        """Send someone home who is idle."""
        self.members.remove(member)
        member.pipe.close()
        member.process.join(1)
        member.process.kill()

    def close(self) -> None:
        """Send everyone home."""
        for member in list(self.members):
            self.dismiss(member)
