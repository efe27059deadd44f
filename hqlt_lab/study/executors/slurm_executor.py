"""SLURM executor: submit an array of jobs, each of which runs one worker of the study, and monitor them.

Jobs are found by their name, which is unique to the study.  So they are never submitted twice, even if the id of the
first array was lost, and jobs that were submitted by hand with the same script are found too.

The executor trains no cells itself.  What the jobs do is in the ledger, which every process of the study reads.

Job script: before the time limit SLURM sends USR1 to the script alone, which makes the worker save a checkpoint and
requeues the job, so a cell may take longer than a job.  When SLURM preempts a job, it signals every process of it and
requeues the job itself.  All values in the script are validated or quoted.  It contains no secrets: jobs get the
database URL through their environment.
"""

import logging
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.file_lock import wait_for_lock
from hqlt_lab.registry import list_loaded_files
from hqlt_lab.study.executors._base import CellEvent
from hqlt_lab.study.executors.launch_context import LaunchContext

logger = logging.getLogger(__name__)

FINISHED_STATES = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
COMMAND_TIMEOUT = 60.0  # seconds


class SlurmJob(NamedTuple):
    """One job of an array, as printed by squeue."""

    array_id: str
    state: str  # PENDING, RUNNING, ...
    reason: str  # why it is pending


class SlurmUnavailable(Exception):
    """A SLURM command failed or timed out; the state of the jobs is unknown."""


def run_command(*arguments: str | Path, **env: str) -> str:
    """Return the output of a SLURM command, run with additional environment variables."""
    try:
        result = subprocess.run(
            arguments, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, env={**os.environ, **env}
        )
    except FileNotFoundError as error:
        message = f"'slurm' needs SLURM's commands, but {arguments[0]} was not found on this machine."
        hint = "Run this on a login node, or use launcher 'local'."
        raise ConfigError.at("launcher", "slurm_not_found", message, hint) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmUnavailable(f"{arguments[0]} did not answer within {COMMAND_TIMEOUT:g} s") from error
    if result.returncode:
        raise SlurmUnavailable(f"{arguments[0]}: {last_error_line(result.stderr or result.stdout)}")
    return result.stdout


def last_error_line(output: str) -> str:
    """Return the last line of an error output, which names the final cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error|fatal): ", "", lines[-1]) if lines else "it failed without a message"


def submit_script(script: Path, job_name: str, env: Mapping[str, str]) -> str:
    """Submit the script and return the id of its array.

    The job name is passed as an option, because SBATCH_JOB_NAME would override the script's.  Jobs inherit `env`, which
    may hold secrets that must not be in the script.
    """
    try:
        output = run_command("sbatch", "--parsable", f"--job-name={job_name}", script, **env)
    except SlurmUnavailable as error:
        raise TrainingError(f"{script}: sbatch rejected the script. {error}") from error
    return output.strip().partition(";")[0]  # ID, or ID;CLUSTER


def list_queued_jobs(job_name: str) -> list[SlurmJob]:
    """Return the user's pending and running jobs of this name."""
    return parse_squeue(
        run_command("squeue", "--me", "--array", "--noheader", f"--name={job_name}", "--format=%F|%T|%r")
    )


def parse_squeue(output: str) -> list[SlurmJob]:
    """Parse squeue's output; leave out finished jobs, which squeue lists for some minutes."""
    rows = [SlurmJob(*line.strip().split("|", 2)) for line in output.splitlines() if line.count("|") >= 2]
    return [job for job in rows if job.state not in FINISHED_STATES]


def summarize_jobs(jobs: Sequence[SlurmJob]) -> str:
    """Return, for example, "3 running, 5 pending (Resources)"."""
    counts = Counter((job.state, job.reason if job.state == "PENDING" else "") for job in jobs)
    return ", ".join(
        f"{count} {state.lower()}{f' ({reason})' if reason else ''}" for (state, reason), count in counts.items()
    )


def array_ids(jobs: Sequence[SlurmJob]) -> list[str]:
    """Return the array ids, as scancel takes them."""
    return sorted({job.array_id for job in jobs})


SCRIPT_BODY = """\
# SLURM signals this script before the time limit; the worker saves a checkpoint, and the job is requeued
trap 'late=yes; kill -TERM "$worker"' USR1
trap : TERM  # all processes of the job get it
cd {working_dir} || exit 1
{command} &
worker=$!
while kill -0 "$worker" 2> /dev/null; do wait "$worker"; done
wait "$worker"
code=$?
[ -n "$late" ] && [ "$code" = {exit_interrupted} ] && exec scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""
EXIT_INTERRUPTED = 130  # exit code of `hqlt worker` after an interrupt


def render_script(context: LaunchContext, options: Mapping[str, object]) -> str:
    """Return the job script; `options` are sbatch options, of which those with value None are left out."""
    directives = [format_directive(name, value) for name, value in options.items() if value is not None]
    head = f"#!/bin/bash\n# written by hqlt for {printable_path(context.file)}; submit it by hand for more workers\n"
    body = SCRIPT_BODY.format(
        working_dir=shlex.quote(str(Path.cwd())),
        command=shlex.join(worker_command(context)),
        exit_interrupted=EXIT_INTERRUPTED,
    )
    return head + "\n".join(directives) + "\n\n" + body


def format_directive(name: str, value: object) -> str:
    """Return an #SBATCH line.  sbatch parses it like a shell, without expansions."""
    text = str(value)
    if invalid := [char for char in text if char in '"\\' or not char.isprintable()]:
        message = f"--{name}={text!r} has {invalid[0]!r}, which a batch script cannot contain."
        raise ConfigError.at("launcher", "invalid_sbatch_value", message, "Use a folder with another name.")
    return f"#SBATCH --{name}" if value is True else f'#SBATCH --{name}="{text}"'


def printable_path(path: Path) -> str:
    """Return the path with non-printable characters replaced, so that it stays in the line of its comment."""
    return "".join(char if char.isprintable() else "?" for char in str(path))


def worker_command(context: LaunchContext) -> Sequence[str]:
    """Return the command that each job runs."""
    component_options = [argument for file in list_loaded_files() for argument in ("--with", str(file))]
    options = [argument for override in context.overrides for argument in ("--set", override)]
    options += [argument for condition in context.only for argument in ("--only", condition)]
    hqlt = [sys.executable, "-m", "hqlt_lab.cli", *component_options]
    return [*hqlt, "worker", str(context.file.resolve()), *options, "--runs", str(context.runs)]


SLURM_FOLDER = "slurm"  # in the study folder: the script, the id of the last array, and the output of its jobs
POLL_INTERVAL = 10.0  # seconds between two calls of squeue
JOB_LOCK_TIMEOUT = 3 * COMMAND_TIMEOUT  # a holder runs squeue and sbatch


class SlurmExecutor:
    """Submits and monitors the jobs of one study."""

    def __init__(self, workers: int, job_name: str, script: str, context: LaunchContext) -> None:
        self.workers, self.job_name, self.script, self.context = workers, job_name, script, context
        self.folder = context.study_folder / SLURM_FOLDER
        self.jobs: list[SlurmJob] | None = None  # None: not polled yet
        self.last_poll, self.jobs_were_missing, self.outage_reported, self.was_interrupted = 0.0, False, False, False

    def can_start(self, cell: Cell) -> bool:
        """Return False: the jobs start cells themselves."""
        return False

    def start_cell(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        raise AssertionError("SLURM jobs start the cells")

    def poll_events(self, timeout: float) -> Iterator[CellEvent]:
        """Yield no events; submit the jobs on the first call, then poll the queue every POLL_INTERVAL seconds."""
        if self.jobs is None:
            self.attach_or_submit()
        elif time.monotonic() - self.last_poll > POLL_INTERVAL:
            self.poll_jobs()
        time.sleep(timeout)
        yield from ()

    def attach_or_submit(self) -> None:
        """Attach to the study's jobs if there are any, otherwise submit.  A file lock serializes concurrent calls."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(self.folder / "job.lock", JOB_LOCK_TIMEOUT):
            try:
                self.jobs = list_queued_jobs(self.job_name)
            except SlurmUnavailable as error:
                raise TrainingError(
                    f"SLURM is unavailable, so the jobs of this study are unknown, and nothing was submitted. {error}. "
                    "Run the same command again when `sinfo` works."
                ) from error
            if self.jobs:
                logger.info(f"This study already has jobs in SLURM: {summarize_jobs(self.jobs)}. Monitoring them.")
            else:
                self.submit_jobs()
        self.last_poll = time.monotonic()

    def submit_jobs(self) -> None:
        """Write the job script and submit it."""
        file = self.folder / "job.sh"
        file.write_text(self.script)
        array_id = submit_script(file, self.job_name, self.context.env)
        (self.folder / "job.id").write_text(f"{array_id}\n")
        logger.info(f"Submitted to SLURM: array {array_id} of {self.workers} jobs. Their output: {self.folder}")

    def poll_jobs(self) -> None:
        """Raise if no job is left in two polls in a row.

        Once is not enough: jobs exit when no cells are left, before this process has noticed that the study is done.
        """
        try:
            self.jobs = list_queued_jobs(self.job_name)
        except SlurmUnavailable as error:
            if not self.outage_reported:
                logger.warning(f"SLURM is unavailable; its jobs keep running, and the study continues. {error}")
            self.outage_reported = True
            return
        finally:
            self.last_poll = time.monotonic()
        self.outage_reported = False
        if not self.jobs and self.jobs_were_missing:
            raise TrainingError(
                "All jobs of this study have ended, but some cells are not finished. The output of the jobs is in "
                f"{self.folder}. Run the same command again to submit new jobs."
            )
        self.jobs_were_missing = not self.jobs

    def request_prune(self, key: str) -> None:
        """No-op: the worker in the job prunes its cells itself."""

    def interrupt_all(self) -> None:
        """Stop monitoring.  The jobs keep running."""
        self.was_interrupted = True

    def kill_all(self) -> None:
        """No-op: this process runs no workers."""

    def close(self) -> None:
        """After an interrupt, print that the jobs keep running and how to cancel them."""
        if self.was_interrupted and (ids := self.active_array_ids()):
            logger.warning(
                "The jobs keep running. Run the same command again to monitor them. Cancel them with\n"
                f"    scancel {' '.join(ids)}"
            )

    def active_array_ids(self) -> list[str]:
        """Return the ids of the queued arrays, or the last known ones if SLURM does not answer."""
        try:
            return array_ids(list_queued_jobs(self.job_name))
        except SlurmUnavailable:
            return array_ids(self.jobs or [])
