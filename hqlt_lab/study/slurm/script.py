"""The script that SLURM runs: an array of jobs, each of which is one worker of the study.

Before the time is over SLURM sends USR1 to the script alone, which asks the worker to save and queues the job again:
so a cell may be longer than any job.  When SLURM takes a job back it tells every process of it by itself, and queues
it again too.

Whatever comes from a file is a word that was checked, or quoted; nothing secret is written here, because the database's
address reaches the jobs by their environment.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import included
from hqlt_lab.study.errand import Errand

BODY = """\
# SLURM warns this script before the time is over; the worker saves, and the job is queued again
trap 'late=yes; kill -TERM "$worker"' USR1
trap : TERM  # all processes of the job get it
cd {here} || exit 1
{command} &
worker=$!
while kill -0 "$worker" 2> /dev/null; do wait "$worker"; done
wait "$worker"
code=$?
[ -n "$late" ] && [ "$code" = {stopped} ] && exec scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""
STOPPED = 130  # what `hqlt worker` ends with when it was asked to


def script(errand: Errand, asked: Mapping[str, object]) -> str:
    """The text; `asked` are sbatch's options, of which those that are None are left out."""
    lines = [directive(name, value) for name, value in asked.items() if value is not None]
    head = f"#!/bin/bash\n# written by hqlt for {printable(errand.file)}; submit it by hand for more workers\n"
    body = BODY.format(here=shlex.quote(str(Path.cwd())), command=shlex.join(command(errand)), stopped=STOPPED)
    return head + "\n".join(lines) + "\n\n" + body


def directive(name: str, value: object) -> str:
    """A line for sbatch, which reads it as a shell would, without expanding anything."""
    told = str(value)
    if wrong := [one for one in told if one in '"\\' or not one.isprintable()]:
        raise ConfigError(f"--{name}={told!r}: a batch script cannot say {wrong[0]!r}. Use a folder of another name.")
    return f"#SBATCH --{name}" if value is True else f'#SBATCH --{name}="{told}"'


def printable(path: Path) -> str:
    """A path for a comment, which must stay in its line."""
    return "".join(one if one.isprintable() else "?" for one in str(path))


def command(errand: Errand) -> Sequence[str]:
    """What each job runs."""
    outside = [word for file in included() for word in ("--with", str(file))]
    words = [word for change in errand.change for word in ("--set", change)]
    words += [word for wish in errand.only for word in ("--only", wish)]
    hqlt = [sys.executable, "-m", "hqlt_lab.cli", *outside]
    return [*hqlt, "worker", str(errand.file.resolve()), *words, "--runs", str(errand.runs)]
