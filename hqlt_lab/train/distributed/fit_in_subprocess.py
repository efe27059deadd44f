"""Train a cell in a child process with its own session, which Lightning (or srun) starts once per device.

The child writes its metrics to standard output, one JSON line each, and stops when its standard input is closed.  So it
ends with its parent, even if the parent is killed.  This module must not import torch: a parent need not load it.
"""

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from hqlt_lab.errors import ConfigError, ConfigIssue, IssueError, StoreError, TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import DiskFull, decode_json, read_json
from hqlt_lab.registry import CodeChanged
from hqlt_lab.rundir.cell_file import CELL_FILE, FolderLocked, write_cell
from hqlt_lab.rundir.outcome import Outcome, read_outcome
from hqlt_lab.train.describe_failure import TransientError
from hqlt_lab.train.distributed.env import srun_command, strip_rank_env
from hqlt_lab.train.interrupt import RunInterrupted, ignore_signal
from hqlt_lab.train.trainer_state import MetricsCallback

logger = logging.getLogger(__name__)

ChildProcess: TypeAlias = "subprocess.Popen[str]"
PROCESS_LOG_FILE = "process.log"
PEER_FAILURE_FILE = "failure.json"  # why a process other than rank 0 failed
# keys of the child's last message for endings that do not count as a failure of the cell
NON_FAILURE_ERRORS: dict[str, type[Exception]] = {
    "interrupted": RunInterrupted,
    "full": DiskFull,
    "changed": CodeChanged,
    "locked": FolderLocked,
}
STOPPED_MESSAGE = "The run was stopped. Run the same command again to resume."
SHUTDOWN_TIMEOUT = 30.0  # seconds between requesting a stop and killing the processes


def fit_in_subprocess(cell: Cell, folder: Path, on_metrics: MetricsCallback) -> Outcome:
    """Train and test a cell in a child process, with the interface of `train.fit.fit`."""
    write_cell(folder, cell)
    if outcome := read_outcome(folder):
        return outcome
    with (folder / PROCESS_LOG_FILE).open("a") as log:
        process = start_process(cell, folder, log)
        try:
            last_message = relay_metrics(process, on_metrics)
        except KeyboardInterrupt:
            # the signal may arrive twice: SLURM sends it to every process, and a coordinator to its workers
            with ignore_signal(signal.SIGTERM):
                last_message = {"interrupted": STOPPED_MESSAGE} | request_stop(process, on_metrics)
        finally:
            terminate_process(process)
    return read_outcome_or_raise(folder, last_message)


def start_process(cell: Cell, folder: Path, log: TextIO) -> ChildProcess:
    """Start the child process, without the rank variables that this process may have."""
    (folder / PEER_FAILURE_FILE).unlink(missing_ok=True)
    srun = srun_command(cell.trainer)
    training = [
        sys.executable,
        "-m",
        "hqlt_lab.train.distributed.rank_main",
        str(folder / CELL_FILE),
        "--stop-with-stdin",
    ]
    env, pipe = strip_rank_env(os.environ, keep_slurm=bool(srun)), subprocess.PIPE
    return subprocess.Popen(
        [*srun, *training], stdin=pipe, stdout=pipe, stderr=log, text=True, env=env, start_new_session=True
    )


def relay_metrics(process: ChildProcess, on_metrics: MetricsCallback) -> dict[str, Any]:
    """Pass the child's metrics to `on_metrics` until it ends.  Return its last message, which states how it ended."""
    assert process.stdout is not None
    message: dict[str, Any] = {}
    for line in process.stdout:
        if not line.endswith("\n"):  # incomplete, because the process was killed
            break
        try:
            message = decode_json(line, dict, allow_nan=True)
        except ValueError:  # printed by a library or a component
            logger.warning(f"Unexpected output of the training process: {line.rstrip()[:200]}")
            continue
        if "metrics" in message:
            on_metrics(message["step"], message["metrics"])
    return message


def request_stop(process: ChildProcess, on_metrics: MetricsCallback) -> dict[str, Any]:
    """Close the child's standard input, so that the run saves and ends, and relay its remaining messages."""
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    return relay_metrics(process, on_metrics)


def terminate_process(process: ChildProcess) -> None:
    """Close the child's standard input, wait up to SHUTDOWN_TIMEOUT, then kill what is left of its process group."""
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=SHUTDOWN_TIMEOUT)
    kill_process_group(process.pid)
    process.wait()


def kill_process_group(group_id: int) -> None:
    """Send SIGKILL to a process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(group_id, signal.SIGKILL)


def read_outcome_or_raise(folder: Path, last_message: dict[str, Any]) -> Outcome:
    """Return the outcome that the child wrote, or raise the error that its last message describes."""
    if outcome := read_outcome(folder):
        return outcome
    # rank 0 may only have noticed that another process is gone; the cause is in that process's failure file
    if not last_message.get("permanent"):
        last_message |= read_peer_failure(folder)
    for key, error_type in NON_FAILURE_ERRORS.items():
        if key in last_message:
            raise restore_error(error_type, last_message[key])
    if last_message.get("issues"):
        raise restore_error(ConfigError, last_message["issues"])
    if "why" in last_message:
        if last_message["permanent"]:
            raise TrainingError(last_message["why"])
        raise TransientError(last_message["why"], last_message.get("signature", ""))
    raise TransientError(f"The training process ended without a result. Its output is in {folder / PROCESS_LOG_FILE}.")


def restore_error(error_type: type[Exception], content: Any) -> Exception:
    """Return the error that `rank_main.end_message` described: by its text, or by its issues."""
    if not issubclass(error_type, IssueError):
        return error_type(content)
    return error_type(*map(ConfigIssue.from_dict, content))


def read_peer_failure(folder: Path) -> dict[str, Any]:
    """Return why a process other than rank 0 failed; empty if none left a readable failure file."""
    with suppress(OSError, StoreError):
        return read_json(folder / PEER_FAILURE_FILE, dict)
    return {}
