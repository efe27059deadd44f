"""SLURM's own commands: submit an array, and ask which of its jobs are still there.

Jobs are found by their name, which belongs to one study: so none is submitted twice, not even when the number of the
first was lost, and whoever submits the script by hand is seen too.
"""

import subprocess
from collections import Counter
from collections.abc import Sequence
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


def ask(*words: str | Path) -> str:
    """What a command of SLURM's says."""
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except FileNotFoundError as error:
        raise ConfigError(
            f"launcher: 'slurm' needs SLURM's commands, and there is no {words[0]} here. Run this where jobs are "
            "submitted, or use launcher 'local'."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Away(f"{words[0]} did not answer within {PATIENCE:g} s") from error
    if told.returncode:
        raise Away(f"{words[0]}: {(told.stderr or told.stdout).strip() or 'it failed without a word'}")
    return told.stdout


def submit(script: Path, name: str) -> str:
    """Queue the script; the number of its array.  The name must be ours, whatever SBATCH_JOB_NAME says."""
    try:
        told = ask("sbatch", "--parsable", f"--job-name={name}", script)
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
