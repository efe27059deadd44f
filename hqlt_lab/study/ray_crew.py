"""Cells as tasks of a Ray cluster.

Ray finds a machine for a cell, starts its process, kills it, and tells when it is over.  Everything else is in the
cell's folder, which all machines see: orders and verdicts (`study.post`), points (`track.spool`).  Ray tries nothing
again: the ledger counts attempts.  A cell whose machine died was interrupted, which is not its fault; one whose process
died was lost.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.hands import STILLBORN, Event
from hqlt_lab.study.post import Post, Said
from hqlt_lab.study.ray_cluster import Resources, machines, places
from hqlt_lab.study.ray_task import work
from hqlt_lab.study.worker import order_for
from hqlt_lab.track.provenance import lab
from hqlt_lab.track.spool import read

KILLED = "Its process on {machine} was killed; if nobody did it, the machine ran out of memory."


@dataclass(eq=False)
class Task:
    """A cell that was given to Ray."""

    key: str
    cell: Cell
    need: Resources
    post: Post
    seen: int  # bytes of its curves that were told
    ref: Any = None
    since: float | None = None  # when somebody took it; until then it waits for room
    asked: bool = False  # to save and stop
    fate: str = ""  # why we ended it, if we did


class RayCrew:
    """Up to `most` tasks, as far as the cluster has room; `leave` is called in the end."""

    def __init__(
        self,
        need_of: Callable[[Cell], Resources],
        threads: int,
        workers: int,
        time_limit: float | None,
        leave: Callable[[], None],
        most: int | None = None,
    ) -> None:
        self.need_of, self.threads, self.workers, self.time_limit = need_of, threads, workers, time_limit
        self.leave, self.most = leave, most
        self.tasks: dict[str, Task] = {}
        self.stillborn = 0

    def room_for(self, cell: Cell) -> bool:
        """A cell takes 1 / places of the cluster; with nobody at work, one may wait for a machine that comes back."""
        if not self.tasks:
            return True
        there = machines()
        fitting = [places(need, there) for need in (self.need_of(cell), *(task.need for task in self.tasks.values()))]
        taken = sum(Fraction(1, count) if count else 1 for count in fitting)
        return taken <= 1 and (self.most is None or len(self.tasks) < self.most)

    def start(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Give a cell to Ray."""
        task = Task(key, cell, self.need_of(cell), Post.open(folder), read(folder)[1])
        order = order_for(cell, folder, attempt, gpus="")  # Ray says which
        order |= {"token": task.post.token, "here": os.getcwd(), "lab": lab(), "threads": self.threads}
        task.ref = remote(task.need).remote(order)
        self.tasks[key] = task

    def events(self, timeout: float) -> Iterator[Event]:
        """What happened since the last time."""
        import ray

        self.end_the_late()
        by_ref = {task.ref: task for task in self.tasks.values()}
        if not by_ref:
            time.sleep(timeout)  # others have cells under way
            return
        over = ray.wait(list(by_ref), timeout=timeout)[0]
        for task in list(self.tasks.values()):
            yield from self.news(task)
        for task in (by_ref[ref] for ref in over):
            del self.tasks[task.key]
            yield Event(task.key, *self.end_of(task))

    def news(self, task: Task) -> Iterator[Event]:
        """That somebody took it, and its new points: those by which it is judged, and the last."""
        if task.since is None and "taken" in task.post.answers():
            task.since, self.stillborn = time.monotonic(), 0
        points, task.seen = read(task.post.folder, task.seen)
        for point in points:
            if task.cell.measure.select in point.metrics or point is points[-1]:
                yield Event(task.key, "point", {"step": point.step, "metrics": point.metrics})

    def end_of(self, task: Task) -> Said:
        """How it ended, in its own words if it came to say them."""
        obstacle, error = answer_of(task.ref)
        if verdict := task.post.verdict():
            return verdict
        if obstacle:
            return "blocked", {"why": obstacle}
        if task.fate:
            return "lost", {"why": task.fate}
        if not_its_fault(error):
            return "interrupted", {}
        if taken := task.post.answers().get("taken"):
            return "lost", {"why": str(getattr(error, "cause", "")) or KILLED.format(**taken)}
        return self.never_taken(error)

    def never_taken(self, error: Exception | None) -> Said:
        """It was not begun, which is not its fault; when this goes on, nothing will be."""
        self.stillborn += 1
        if self.stillborn >= STILLBORN:
            told = str(error).strip().splitlines()
            raise TrainingError(
                f"launcher: {self.stillborn} tasks died before they could begin. {told[-1] if told else ''} "
                "The same hqlt_lab must be installed on every machine of the cluster."
            )
        return "interrupted", {}

    def end_the_late(self) -> None:
        """A task that takes longer than it may is killed; waiting for room is not counted."""
        for task in self.tasks.values():
            if self.time_limit and task.since and not task.fate and time.monotonic() - task.since > self.time_limit:
                task.fate = f"The time limit of {self.time_limit:g} s passed."
                cancel(task, force=True)

    def give_up(self, key: str) -> None:
        """Ask a task to stop; its event will follow."""
        if key in self.tasks:
            self.tasks[key].post.order("give up")

    def interrupt(self) -> None:
        """Ask all to save and stop, each of them once; who waits for room need not begin."""
        for task in self.tasks.values():
            if not task.asked:
                task.asked = True
                task.post.order("stop")
                if task.since is None:
                    cancel(task, force=False)

    def kill(self) -> None:
        """Wait for nobody."""
        for task in self.tasks.values():
            cancel(task, force=True)

    def close(self) -> None:
        """End what is left, and leave the cluster."""
        self.kill()
        self.leave()


def remote(need: Resources) -> Any:
    """The task as Ray takes it; attempts are counted in the ledger, so Ray makes one."""
    import ray

    words: dict[str, Any] = {"num_cpus": need["CPU"], "num_gpus": need.get("GPU", 0), "max_retries": 0}
    if "memory" in need:
        words["memory"] = int(need["memory"])
    return ray.remote(**words)(work)


def answer_of(ref: Any) -> tuple[str, Exception | None]:
    """Of a task that is over: what of its machine stood in the way, and what Ray says went wrong."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(ref), None
    except RayError as error:
        return "", error


def not_its_fault(error: Exception | None) -> bool:
    """Its machine died, or it was asked to end before it began."""
    from ray.exceptions import NodeDiedError, TaskCancelledError

    return isinstance(error, NodeDiedError | TaskCancelledError)


def cancel(task: Task, force: bool) -> None:
    """Tell Ray; by force the process is gone at once."""
    import ray

    ray.cancel(task.ref, force=force)
