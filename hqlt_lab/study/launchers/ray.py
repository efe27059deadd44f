"""Ray: each cell is a task on a Ray cluster, which selects its machine.

launcher: {name: ray, cpus: 4, gpus: 0.5, address: "head:6379"}
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.registry import check_minimums, register
from hqlt_lab.study.executors.local_executor import LocalExecutor
from hqlt_lab.study.executors.ray_executor import (
    RayExecutor,
    connect_cluster,
    list_nodes,
    make_resource_request,
    require_slots,
)
from hqlt_lab.study.executors.resources import gpus_for_cell
from hqlt_lab.study.launchers.local import Local


@register("launcher", "ray")
@dataclass(frozen=True, kw_only=True)
class Ray:
    workers: int | None = None
    """Maximum number of cells trained at once; null: as many as fit on the cluster."""
    cpus: float = 1.0
    """CPUs per cell, and its number of threads."""
    gpus: float | None = None
    """GPUs per cell, or the fraction of a shared one; null: one for each of its devices."""
    memory: float | None = None
    """GB of memory that a cell requests; null: no request."""
    address: str | None = None
    """HOST:PORT of a cluster, auto or local; null: RAY_ADDRESS, else the cluster on this machine, else a new one."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: no limit."""
    retries: int = 2
    """How often a failed cell is retried; attempts on a machine that died are not counted."""

    def __post_init__(self) -> None:
        minimums = {"workers": 1, "cpus": 0.01, "gpus": 0, "memory": 0, "time_limit": 1, "retries": 0}
        if issues := check_minimums(self, minimums):
            raise ConfigError(*issues)

    def make_worker_executor(self, cells: list[Cell]) -> LocalExecutor:
        """Return the executor of `hqlt worker`, which trains on its own machine."""
        local = Local(workers=self.workers, gpus=self.gpus, time_limit=self.time_limit, retries=self.retries)
        return local.make_executor(cells)

    def make_executor(self, cells: list[Cell]) -> RayExecutor:
        """Return the executor for these cells.  Without cells, does not connect to a cluster."""
        threads = max(1, int(self.cpus))
        if not cells:
            return RayExecutor(lambda cell: {}, threads, 1, self.time_limit, lambda: None)
        disconnect = connect_cluster(self.address)
        try:
            nodes = list_nodes()
            gpus = int(sum(node.get("GPU", 0) for node in nodes))
            slots = min(require_slots(request, nodes) for request in self.distinct_requests(cells, gpus))
        except BaseException:
            disconnect()
            raise
        workers = max(1, min(self.workers or slots, slots, len(cells)))
        return RayExecutor(
            lambda cell: self.cell_request(cell, gpus), threads, workers, self.time_limit, disconnect, self.workers
        )

    def cell_request(self, cell: Cell, available_gpus: int) -> dict[str, float]:
        """Return the resources that one cell requests on a cluster with this many GPUs."""
        return make_resource_request(self.cpus, gpus_for_cell(cell, self.gpus, available_gpus), self.memory)

    def distinct_requests(self, cells: list[Cell], available_gpus: int) -> Iterable[dict[str, float]]:
        """Return the resource requests of these cells without duplicates."""
        requests = (self.cell_request(cell, available_gpus) for cell in cells)
        return {tuple(request.items()): request for request in requests if request}.values()
