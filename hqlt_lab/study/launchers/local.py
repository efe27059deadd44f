"""Local: preloaded worker processes on this machine, each with its share of cores and GPUs.

launcher: {name: local, workers: 4, gpus: 0.5, time_limit: 3600}
"""

from dataclasses import dataclass

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.registry import check_maximums, check_minimums, register
from hqlt_lab.study.executors.local_executor import LocalExecutor
from hqlt_lab.study.executors.resources import detect_resources, gpu_fraction, gpus_for_cell, max_concurrent_cells


@register("launcher", "local")
@dataclass(frozen=True, kw_only=True)
class Local:
    workers: int | None = None
    """Cells that are trained at once; null: as many as fit on the machine."""
    threads: int | None = None
    """CPU threads per worker; null: the cores are divided among the workers."""
    gpus: float | None = None
    """GPUs per cell, or the fraction of a shared one; null: one for each of its devices."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: no limit."""
    retries: int = 2
    """How often a failed cell is retried."""

    def __post_init__(self) -> None:
        issues = check_minimums(self, {"workers": 1, "threads": 1, "gpus": 0, "time_limit": 1, "retries": 0})
        if issues := issues + check_maximums(self, {"workers": 1024, "threads": 1024, "retries": 1000}):
            raise ConfigError(*issues)

    def make_executor(self, cells: list[Cell]) -> LocalExecutor:
        """Return the executor for these cells, with as many workers as the machine and the number of cells allow."""
        machine = detect_resources()
        gpu_requests = {gpu_fraction(gpus_for_cell(cell, self.gpus, machine.gpus)) for cell in cells}
        max_workers = min((max_concurrent_cells(machine, request) for request in gpu_requests), default=1)
        workers = self.workers or max(1, min(max_workers, len(cells)))
        threads = self.threads or max(1, machine.cores // workers)
        return LocalExecutor(
            workers, threads, machine.gpus, lambda cell: gpus_for_cell(cell, self.gpus, machine.gpus), self.time_limit
        )

    make_worker_executor = make_executor
    """`hqlt worker` uses the same executor on its own machine."""
