"""Entry point of the process that trains one cell on several devices.

    python -m hqlt_lab.train.distributed.rank_main FOLDER/cell.json [--stop-with-stdin]

Lightning starts this command once per device; on several nodes srun does.  Rank 0 writes metrics and how the run ended
to standard output as JSON lines; all other output goes to standard error.  With --stop-with-stdin the run saves and
stops when standard input is closed.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from hqlt_lab.errors import HqltError, IssueError
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.files import read_json, translate_disk_full, write_atomic
from hqlt_lab.log_handler import log_to_stderr
from hqlt_lab.redact import print_redacted_traceback, redact_secrets
from hqlt_lab.train.describe_failure import describe_failure
from hqlt_lab.train.distributed.env import is_rank_zero
from hqlt_lab.train.distributed.fit_in_subprocess import (
    NON_FAILURE_ERRORS,
    PEER_FAILURE_FILE,
    SHUTDOWN_TIMEOUT,
    kill_process_group,
)
from hqlt_lab.train.interrupt import RunInterrupted

# run as __main__, so __name__ is not below the package's logger
logger = logging.getLogger("hqlt_lab.train.distributed.rank_main")

PEER_FAILURE_DELAY = 3.0  # grace period in seconds, so that rank 0, which reports errors, can fail first


def main(file: Path, stop_with_stdin: bool) -> int:
    """Train the cell described in this file, in the folder of the file.  Return the exit code."""
    stdout = redirect_stdout()
    if stop_with_stdin and is_rank_zero():
        threading.Thread(target=stop_run_at_eof, daemon=True).start()
    from hqlt_lab.train.fit import fit_in_process  # slow, so imported only once the thread above is running

    def send(**message: object) -> None:
        print(json.dumps(message), file=stdout, flush=True)

    def on_metrics(step: int, metrics: dict[str, float]) -> None:
        send(step=step, metrics=metrics)

    try:
        with translate_disk_full(file.parent):
            fit_in_process(cell_from_dict(read_json(file, dict, allow_nan=True)), file.parent, on_metrics)
    except Exception as error:
        # messages of HqltError are complete; for other errors the traceback is needed
        logger.error(redact_secrets(str(error) if isinstance(error, HqltError) else traceback.format_exc().rstrip()))
        if is_rank_zero():
            send(**end_message(error))
            return 1
        return 0 if isinstance(error, RunInterrupted) else record_peer_failure(file.parent, error)
    return 0


def end_message(error: Exception) -> dict[str, object]:
    """Return the last message of a run that ended with this error, for the parent process."""
    issues = [asdict(issue) for issue in error.issues] if isinstance(error, IssueError) else []
    for key, error_type in NON_FAILURE_ERRORS.items():
        if isinstance(error, error_type):
            return {key: issues or str(error)}
    return {**describe_failure(error)._asdict(), "issues": issues}


def record_peer_failure(folder: Path, error: Exception) -> int:
    """Write why a process other than rank 0 failed, and return its exit code.

    Its exit code makes Lightning or srun end the other processes, which would otherwise wait for it.  They only notice
    that it is gone, so the cause is written into the folder.
    """
    with suppress(OSError):
        write_atomic(folder / PEER_FAILURE_FILE, json.dumps(end_message(error)))
    time.sleep(PEER_FAILURE_DELAY)
    return 1


def redirect_stdout() -> TextIO:
    """Return the original standard output, and send everything that is printed from now on to standard error."""
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return stdout


def stop_run_at_eof() -> None:
    """Wait until standard input is closed, then let all processes of the run save and end."""
    sys.stdin.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(SHUTDOWN_TIMEOUT)
    kill_process_group(os.getpgid(0))


if __name__ == "__main__":
    sys.excepthook = print_redacted_traceback
    with log_to_stderr(logging.DEBUG):
        sys.exit(main(Path(sys.argv[1]), "--stop-with-stdin" in sys.argv))
