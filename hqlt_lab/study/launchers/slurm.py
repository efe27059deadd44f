"""SLURM: an array of jobs, each of which takes one cell after another until none is left.

launcher: {name: slurm, workers: 8, partition: gpu, time: "04:00:00", gpus: 1, cpus: 4, memory: 16G}

The ledger is then in PostgreSQL (HQLT_STORE), and all machines see the folder of runs.  Whatever else sbatch should
know stands in its own variables, SBATCH_CONSTRAINT and the like.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.registry import register, too_small
from hqlt_lab.study.crew import Crew
from hqlt_lab.study.errand import Errand
from hqlt_lab.study.launchers.local import Local
from hqlt_lab.study.slurm.follower import FOLDER, Follower
from hqlt_lab.study.slurm.script import script

WORD = r"[A-Za-z0-9][A-Za-z0-9_.,+-]*"
CHECKED = {  # option -> what it may look like, and how that is said
    "partition": (WORD, "a partition's name"),
    "account": (WORD, "an account's name"),
    "qos": (WORD, "the name of a quality of service"),
    "time": (r"(\d{1,3}-)?\d{1,3}:[0-5]\d:[0-5]\d", "a time such as '04:00:00' or '2-00:00:00', in quotes"),
    "memory": (r"[1-9]\d*[KMGT]", "memory such as 16G"),
}


@register("launcher", "slurm")
@dataclass(frozen=True, kw_only=True)
class Slurm:
    workers: int = 4
    """Jobs of the array; each trains one cell at a time."""
    partition: str | None = None
    """Where the jobs run; null: SLURM's default."""
    account: str | None = None
    """Who pays for them."""
    qos: str | None = None
    """Their quality of service."""
    time: str | int | None = None
    """The longest a job may take, "HH:MM:SS" or "D-HH:MM:SS" in quotes; a cell that is longer goes on in the next."""
    notice: int = 90
    """Seconds before that in which the cell saves."""
    gpus: int = 0
    """GPUs of each job on each of its machines; a cell with more devices gets more."""
    cpus: int = 1
    """CPU threads per device."""
    memory: str | None = None
    """Memory of each job on each of its machines, such as 16G; null: SLURM's default."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: as long as it wants."""
    retries: int = 2
    """How often a cell that failed is tried again."""
    errand: Errand | None = None

    def __post_init__(self) -> None:
        least = {"workers": 1, "notice": 1, "gpus": 0, "cpus": 1, "time_limit": 1, "retries": 0}
        wrong = too_small(self, least)
        for name, (pattern, said) in CHECKED.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, str(value), re.ASCII):
                wrong.append(f"{name}: {value!r} is not {said}.")
        if not wrong and self.time is not None and self.notice >= (whole := seconds_in(str(self.time))):
            wrong.append(f"notice: {self.notice} seconds before its end, a job of {whole} has hardly begun. Use fewer.")
        if wrong:
            raise ConfigError("\n".join(wrong))

    def crew(self, cells: list[Cell]) -> Follower:
        """Those who follow the jobs."""
        assert self.errand is not None
        if not self.errand.shared:
            raise ConfigError(
                "launcher: with 'slurm' several machines share a study, which has to be kept in PostgreSQL: "
                "export HQLT_STORE=postgresql://USER@HOST/DATABASE (docs/cluster.md)."
            )
        if self.errand.limit is not None:
            raise ConfigError("--limit: jobs of SLURM go on until nothing is left. Choose cells with --only.")
        name = job_name(self.errand.folder)
        return Follower(self.workers, name, script(self.errand, self.asked(name, cells)), self.errand)

    def asked(self, name: str, cells: list[Cell]) -> dict[str, object]:
        """What sbatch is told: room for the widest of the cells."""
        assert self.errand is not None
        devices = max((cell.trainer.devices for cell in cells), default=1)
        gpu = ("gpu", "auto") if self.gpus else ("gpu",)
        gpus = max([self.gpus, *(cell.trainer.devices for cell in cells if cell.trainer.accelerator in gpu)])
        return {
            "job-name": name,
            "array": f"1-{self.workers}",
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time,
            "nodes": max((cell.trainer.nodes for cell in cells), default=1),
            "ntasks-per-node": devices,
            "cpus-per-task": self.cpus,
            "gpus-per-node": gpus or None,
            "mem": self.memory,
            "export": "ALL",
            "requeue": True,
            "open-mode": "append",
            "signal": f"B:USR1@{self.notice}",
            "output": str(self.errand.folder / FOLDER).replace("%", "%%") + "/%A_%a.log",
        }

    def worker_crew(self, cells: list[Cell]) -> Crew:
        """Those who train in a job: one cell at a time, with all that the job has."""
        return Local(workers=1, threads=self.cpus, time_limit=self.time_limit, retries=self.retries).crew(cells)


def seconds_in(time: str) -> int:
    """Of "2-04:00:00" or "04:00:00", which was checked."""
    days, _, clock = time.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def job_name(folder: Path) -> str:
    """One study's alone, and one that people know again."""
    return f"hqlt-{re.sub('[^A-Za-z0-9_.]', '_', folder.name)[:40]}-{digest(str(folder))[:8]}"
