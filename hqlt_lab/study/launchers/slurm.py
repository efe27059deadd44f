"""SLURM: an array of jobs, each of which trains one cell after another until none is left.

launcher: {name: slurm, workers: 8, partition: gpu, time: "04:00:00", gpus: 1, cpus: 4, memory: 16G}

The ledger must be in PostgreSQL (HQLT_STORE), and all machines must see the runs folder.  Set further options of sbatch
with its environment variables, such as SBATCH_CONSTRAINT.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.hashing import hash_json
from hqlt_lab.registry import check_minimums, register
from hqlt_lab.study.executors.launch_context import LaunchContext
from hqlt_lab.study.executors.local_executor import LocalExecutor
from hqlt_lab.study.executors.slurm_executor import SLURM_FOLDER, SlurmExecutor, render_script
from hqlt_lab.study.launchers.local import Local

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.,+-]*"
OPTION_PATTERNS = {  # option -> its pattern, and how error messages describe it
    "partition": (NAME_PATTERN, "a partition's name"),
    "account": (NAME_PATTERN, "an account's name"),
    "qos": (NAME_PATTERN, "the name of a quality of service"),
    "time": (r"(\d{1,3}-)?\d{1,3}:[0-5]\d:[0-5]\d", "a time such as '04:00:00' or '2-00:00:00', in quotes"),
    "memory": (r"[1-9]\d*[KMGT]", "memory such as 16G"),
}


@register("launcher", "slurm")
@dataclass(frozen=True, kw_only=True)
class Slurm:
    workers: int = 4
    """Jobs of the array; each trains one cell at a time."""
    partition: str | None = None
    """Partition of the jobs; null: SLURM's default."""
    account: str | None = None
    """Account the jobs are charged to."""
    qos: str | None = None
    """Quality of service of the jobs."""
    time: str | int | None = None
    """Time limit of a job, "HH:MM:SS" or "D-HH:MM:SS" in quotes; a cell that takes longer continues in the next job."""
    notice: int = 90
    """Seconds before the time limit at which the cell saves a checkpoint."""
    gpus: int = 0
    """GPUs of each job on each of its nodes; raised for cells with more devices."""
    cpus: int = 1
    """CPU threads per device."""
    memory: str | None = None
    """Memory of each job on each of its nodes, such as 16G; null: SLURM's default."""
    time_limit: float | None = None
    """Seconds an attempt at a cell may take; null: no limit."""
    retries: int = 2
    """How often a failed cell is retried."""
    context: LaunchContext | None = None

    def __post_init__(self) -> None:
        minimums = {"workers": 1, "notice": 1, "gpus": 0, "cpus": 1, "time_limit": 1, "retries": 0}
        issues = check_minimums(self, minimums)
        for name, (pattern, description) in OPTION_PATTERNS.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, str(value), re.ASCII):
                issues.append(ConfigIssue(name, "invalid_slurm_option", f"{value!r} is not {description}."))
        if not issues and self.time is not None and self.notice >= (total := parse_slurm_time(str(self.time))):
            message = f"the notice of {self.notice} s must be shorter than the job's time limit of {total} s."
            issues.append(ConfigIssue("notice", "notice_too_long", message, "Use a shorter notice."))
        if issues:
            raise ConfigError(*issues)

    def make_executor(self, cells: list[Cell]) -> SlurmExecutor:
        """Return the executor that submits and monitors the jobs."""
        assert self.context is not None
        if not self.context.is_shared:
            raise ConfigError.at(
                "launcher",
                "shared_store_needed",
                "'slurm' runs a study on several machines, which requires PostgreSQL.",
                "Set it: export HQLT_STORE=postgresql://USER@HOST/DATABASE (docs/cluster.md).",
            )
        if self.context.limit is not None:
            message = "SLURM jobs run until no cell is left."
            raise ConfigError.at("--limit", "limit_with_slurm", message, "Choose cells with --only.")
        name = make_job_name(self.context.study_folder)
        return SlurmExecutor(
            self.workers, name, render_script(self.context, self.sbatch_options(name, cells)), self.context
        )

    def sbatch_options(self, job_name: str, cells: list[Cell]) -> dict[str, object]:
        """Return the sbatch options, with resources for the cell that needs the most devices."""
        assert self.context is not None
        devices = max((cell.trainer.devices for cell in cells), default=1)
        gpu_accelerators = ("gpu", "auto") if self.gpus else ("gpu",)
        gpu_cells = [cell for cell in cells if cell.trainer.accelerator in gpu_accelerators]
        gpus = max([self.gpus, *(cell.trainer.devices for cell in gpu_cells)])
        return {
            "job-name": job_name,
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
            "output": str(self.context.study_folder / SLURM_FOLDER).replace("%", "%%") + "/%A_%a.log",
        }

    def make_worker_executor(self, cells: list[Cell]) -> LocalExecutor:
        """Return the executor inside a job: one cell at a time, with all resources of the job."""
        return Local(workers=1, threads=self.cpus, time_limit=self.time_limit, retries=self.retries).make_executor(
            cells
        )


def parse_slurm_time(time: str) -> int:
    """Return the seconds of a validated time such as "2-04:00:00" or "04:00:00"."""
    days, _, clock = time.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def make_job_name(study_folder: Path) -> str:
    """Return a job name that is unique to the study folder and contains the study's name."""
    return f"hqlt-{re.sub('[^A-Za-z0-9_.]', '_', study_folder.name)[:40]}-{hash_json(str(study_folder))[:8]}"
