"""How one of several processes is started, and told its place among them: by variables of Lightning, torchrun or SLURM.

On one machine Lightning repeats our command itself.  On several machines of a SLURM job `srun` does: one process per
device, of which only the first hears our standard input.
"""

import os
from collections.abc import Mapping

from hqlt_lab.experiment.settings import TrainerConfig

PLACES = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
OTHERS = ("GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def first() -> bool:
    """Whether this is the only process of a run or the first one, as told by whoever started it."""
    return all(os.environ.get(name, "0") == "0" for name in PLACES)


def srun(settings: TrainerConfig) -> list[str]:
    """The words before a command that start it on all machines of a run; none where this is no job of SLURM's."""
    if settings.nodes == 1 or "SLURM_JOB_ID" not in os.environ:
        return []
    cpus = os.environ.get("SLURM_CPUS_PER_TASK", "1")  # which srun does not take from the job by itself
    words: dict[str, object] = {"nodes": settings.nodes, "ntasks": settings.nodes * settings.devices}
    words |= {"ntasks-per-node": settings.devices, "cpus-per-task": cpus, "input": 0, "kill-on-bad-exit": 1}
    return ["srun", *(f"--{name}={value}" for name, value in words.items())]


def without_a_place(environment: Mapping[str, str], slurm: bool) -> dict[str, str]:
    """The variables for a run of its own, free of our place among others; srun needs those of its job."""
    foreign = ("TORCHELASTIC_",) if slurm else ("TORCHELASTIC_", "SLURM_")
    ours = {*PLACES, *OTHERS}
    return {name: value for name, value in environment.items() if name not in ours and not name.startswith(foreign)}
