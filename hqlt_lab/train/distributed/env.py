"""Environment variables by which Lightning, torchrun or SLURM tell a process its rank.

On one node Lightning starts the other processes itself, by running the same command again.  On several nodes of a SLURM
job `srun` starts one process per device, and only rank 0 receives standard input.
"""

import os
from collections.abc import Mapping

from hqlt_lab.experiment.run_settings import TrainerConfig

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
PROCESS_GROUP_VARIABLES = ("GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_rank_zero() -> bool:
    """Return whether this is rank 0 (or the only process) according to its environment variables."""
    return all(os.environ.get(name, "0") == "0" for name in RANK_VARIABLES)


def srun_command(settings: TrainerConfig) -> list[str]:
    """Return the `srun` command prefix for a run on several nodes; empty on one node or outside of a SLURM job."""
    if settings.nodes == 1 or "SLURM_JOB_ID" not in os.environ:
        return []
    cpus = os.environ.get("SLURM_CPUS_PER_TASK", "1")  # srun does not inherit this from the job
    options: dict[str, object] = {"nodes": settings.nodes, "ntasks": settings.nodes * settings.devices}
    options |= {"ntasks-per-node": settings.devices, "cpus-per-task": cpus, "input": 0, "kill-on-bad-exit": 1}
    return ["srun", *(f"--{name}={value}" for name, value in options.items())]


def strip_rank_env(environment: Mapping[str, str], keep_slurm: bool) -> dict[str, str]:
    """Return the environment variables for an independent run, without the rank of this process.

    `keep_slurm`: keep the SLURM variables, which srun needs to find its job.
    """
    prefixes = ("TORCHELASTIC_",) if keep_slurm else ("TORCHELASTIC_", "SLURM_")
    removed = {*RANK_VARIABLES, *PROCESS_GROUP_VARIABLES}
    return {name: value for name, value in environment.items() if name not in removed and not name.startswith(prefixes)}
