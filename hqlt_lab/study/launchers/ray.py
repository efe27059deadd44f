"""Ray: cells are tasks of a Ray cluster, wherever it has room for them.

launcher: {name: ray, cpus: 4, gpus: 0.5, address: "head:6379"}
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.registry import register, too_small
from hqlt_lab.study.crew import Crew
from hqlt_lab.study.launchers.local import Local
from hqlt_lab.study.machine import gpus_of
from hqlt_lab.study.ray_cluster import connect, machines, request, room
from hqlt_lab.study.ray_crew import RayCrew


@register("launcher", "ray")
@dataclass(frozen=True, kw_only=True)
class Ray:
    workers: int | None = None
    """Cells that are trained at once, at most; null: as many as the cluster has room for."""
    cpus: float = 1.0
    """CPUs per cell, and so many threads."""
    gpus: float | None = None
    """GPUs per cell, or a part of one that it shares; null: as many as it has devices."""
    memory: float | None = None
    """GB of memory that a cell asks for; null: it asks for none."""
    address: str | None = None
    """HOST:PORT of a cluster, auto or local; null: RAY_ADDRESS, or the one on this machine, or one of its own."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: as long as it wants."""
    retries: int = 2
    """How often a cell that failed is tried again; machines that die are not its fault, and not counted."""

    def __post_init__(self) -> None:
        least = {"workers": 1, "cpus": 0.01, "gpus": 0, "memory": 0, "time_limit": 1, "retries": 0}
        if wrong := too_small(self, least):
            raise ConfigError("\n".join(wrong))

    def worker_crew(self, cells: list[Cell]) -> Crew:
        """Those of `hqlt worker`, which trains on its own machine."""
        local = Local(workers=self.workers, gpus=self.gpus, time_limit=self.time_limit, retries=self.retries)
        return local.crew(cells)

    def crew(self, cells: list[Cell]) -> RayCrew:
        """Those who will train these cells; for none of them no cluster is looked for."""
        threads = max(1, int(self.cpus))
        if not cells:
            return RayCrew(lambda cell: {}, threads, 1, self.time_limit, lambda: None)
        leave = connect(self.address)
        try:
            there = machines()
            gpus = int(sum(one.get("GPU", 0) for one in there))
            fitting = min(room(need, there) for need in self.needs(cells, gpus))
        except BaseException:
            leave()
            raise
        workers = max(1, min(self.workers or fitting, fitting, len(cells)))
        return RayCrew(lambda cell: self.need(cell, gpus), threads, workers, self.time_limit, leave, self.workers)

    def need(self, cell: Cell, there: int) -> dict[str, float]:
        """What one cell takes, where so many GPUs are."""
        return request(self.cpus, gpus_of(cell, self.gpus, there), self.memory)

    def needs(self, cells: list[Cell], there: int) -> Iterable[dict[str, float]]:
        """What these cells take, the same only once."""
        return {tuple(need.items()): need for cell in cells if (need := self.need(cell, there))}.values()
