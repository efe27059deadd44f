"""Local: warm processes on this machine, each with its share of cores and GPUs.

launcher: {name: local, workers: 4, gpus: 0.5, time_limit: 3600}
"""

from dataclasses import dataclass

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.registry import register, too_large, too_small
from hqlt_lab.study.crew import Crew
from hqlt_lab.study.machine import at_once, gpus_of, share, this_machine


@register("launcher", "local")
@dataclass(frozen=True, kw_only=True)
class Local:
    workers: int | None = None
    """Cells that are trained at once; null: as many as fit the machine."""
    threads: int | None = None
    """CPU threads of each; null: the cores are divided among them."""
    gpus: float | None = None
    """GPUs per cell, or a part of one that it shares; null: as many as it has devices."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: as long as it wants."""
    retries: int = 2
    """How often a cell that failed is tried again."""

    def __post_init__(self) -> None:
        wrong = too_small(self, {"workers": 1, "threads": 1, "gpus": 0, "time_limit": 1, "retries": 0})
        if wrong := wrong + too_large(self, {"workers": 1024, "threads": 1024, "retries": 1000}):
            raise ConfigError("\n".join(wrong))

    def crew(self, cells: list[Cell]) -> Crew:
        """Those who will train these cells."""
        machine = this_machine()
        needs = {share(gpus_of(cell, self.gpus, machine.gpus)) for cell in cells}
        fitting = min((at_once(machine, need) for need in needs), default=1)
        workers = self.workers or max(1, min(fitting, len(cells)))
        threads = self.threads or max(1, machine.cores // workers)
        return Crew(
            workers, threads, machine.gpus, lambda cell: gpus_of(cell, self.gpus, machine.gpus), self.time_limit
        )

    worker_crew = crew
    """`hqlt worker` trains in the same way, on its machine."""
