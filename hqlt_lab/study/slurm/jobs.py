"""SLURM's own commands: submit an array, and ask which of its jobs are still there.

Jobs are found by their name, which belongs to one study: so none is submitted twice, not even when the number of the
first was lost, and whoever submits the script by hand is seen too.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.errors import ConfigError, TrainingError

OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
PATIENCE = 60.0  # seconds that a command may take


class Job(NamedTuple):
    """One job of an array, as squeue tells it."""

    array: str  # its number
    state: str  # PENDING, RUNNING, ...
    reason: str  # why it waits


class Away(Exception):
    """SLURM did not answer, which says nothing about the jobs."""


def ask(*words: str | Path, **environment: str) -> str:
    """What a command of SLURM's says; it may have variables of its own."""
    try:
        told = subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **environment}
        )
    except FileNotFoundError as error:
        raise ConfigError(
            f"launcher: 'slurm' needs SLURM's commands, and there is no {words[0]} here. Run this where jobs are "
            "submitted, or use launcher 'local'."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Away(f"{words[0]} did not answer within {PATIENCE:g} s") from error
    if told.returncode:
        raise Away(f"{words[0]}: {complaint(told.stderr or told.stdout)}")
    return told.stdout


def complaint(said: str) -> str:
    """The last of its lines, which is what the others led to."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error|fatal): ", "", lines[-1]) if lines else "it failed without a word"


def submit(script: Path, name: str, environment: Mapping[str, str]) -> str:
    """Queue the script; the number of its array.  The name must be ours, whatever SBATCH_JOB_NAME says.

    Jobs inherit the environment, and only so learn what no script may say.
    """
    try:
        told = ask("sbatch", "--parsable", f"--job-name={name}", script, **environment)
    except Away as error:
        raise TrainingError(f"{script}: SLURM did not take it. {error}") from error
    return told.strip().partition(";")[0]  # NUMBER, or NUMBER;CLUSTER


def queued(name: str) -> list[Job]:
    """Our jobs of this name that wait or run."""
    return listed(ask("squeue", "--me", "--array", "--noheader", f"--name={name}", "--format=%F|%T|%r"))


def listed(told: str) -> list[Job]:
    """From squeue's lines; jobs that are over stay in them for some minutes."""
    rows = [Job(*line.strip().split("|", 2)) for line in told.splitlines() if line.count("|") >= 2]
    return [job for job in rows if job.state not in OVER]


def in_words(jobs: Sequence[Job]) -> str:
    """'3 running, 5 pending (Resources)', for people."""
    counted = Counter((job.state, job.reason if job.state == "PENDING" else "") for job in jobs)
    return ", ".join(
        f"{count} {state.lower()}{f' ({reason})' if reason else ''}" for (state, reason), count in counted.items()
    )


def arrays(jobs: Sequence[Job]) -> list[str]:
    """The numbers for scancel."""
    return sorted({job.array for job in jobs})
