"""Ray task: check that this machine can run the job as specified, then train the cell in its folder.

The result is written to the folder (`executors.file_mailbox`); Ray is only notified that the task has ended, so a
machine that dies at this moment loses nothing.  Ray reuses a process for several tasks unless they need GPUs.  After a
failure the process exits, because the error may have left it unusable.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hqlt_lab.files import DiskFull, translate_disk_full
from hqlt_lab.process_settings import set_cpu_threads
from hqlt_lab.study.executors.file_mailbox import FileMailbox
from hqlt_lab.study.executors.worker import Message, run_attempt
from hqlt_lab.track.provenance import lab_hash

POLL_INTERVAL = 0.5  # seconds between two reads of the commands
SHARED_DISK_TIMEOUT = 5.0  # seconds until a network file system must show what was just written
SHARED_DISK_HINT = "It must have the same path on all machines: use a shared disk (`--runs /shared/runs`)."


def run_ray_task(job_spec: dict[str, Any]) -> str:
    """Train a cell; return why this machine could not do it, or an empty string."""
    mailbox = FileMailbox(Path(job_spec["folder"]), job_spec["token"])
    if obstacle := next(preflight_errors(job_spec, mailbox), ""):
        return f"launcher: The machine {socket.gethostname()} {obstacle}"
    os.chdir(job_spec["working_dir"])
    # imports torch, which takes seconds in a new process, before the cell's time limit starts to count
    import hqlt_lab.train.fit  # noqa: F401

    set_cpu_threads(job_spec["threads"])
    try:
        with translate_disk_full(mailbox.folder):
            return train_and_reply(job_spec, mailbox)
    except DiskFull as error:  # the reply could not be written either
        return str(error)


def train_and_reply(job_spec: dict[str, Any], mailbox: FileMailbox) -> str:
    """Train a cell and write the result to the mailbox; return the reason if this machine blocked the attempt."""
    mailbox.send_reply("started", {"machine": socket.gethostname(), "process": os.getpid()})
    with MailboxListener(mailbox) as listener:
        kind, payload = run_attempt(job_spec, discard_message, listener.prune_requested.is_set)
    if kind == "blocked":
        return str(payload["why"])
    mailbox.send_reply(kind, payload)
    if kind == "failed":
        os._exit(1)
    return ""


def discard_message(message: Message) -> None:
    """Ignore a metrics message: the coordinator reads the metrics from the cell's folder."""


def preflight_errors(
    job_spec: dict[str, Any], mailbox: FileMailbox, timeout: float = SHARED_DISK_TIMEOUT
) -> Iterator[str]:
    """Yield the reasons why this machine cannot run the job as specified: missing paths, another code version."""
    deadline = time.monotonic() + timeout
    while "train" not in mailbox.read_commands():
        if time.monotonic() > deadline:
            yield f"cannot access the folder {mailbox.folder} of a cell. {SHARED_DISK_HINT}"
            return
        time.sleep(0.1)
    for path in (job_spec["working_dir"], *job_spec["component_files"]):
        if not Path(path).exists():
            yield (
                f"cannot access {path}, the working directory of the study or the folder of a component. "
                f"{SHARED_DISK_HINT}"
            )
    if lab_hash() != job_spec["lab_hash"]:
        yield "has a different version of hqlt_lab. Install the same version on all machines."


class MailboxListener(threading.Thread):
    """Thread that reads the coordinator's commands while a cell is trained."""

    def __init__(self, mailbox: FileMailbox) -> None:
        super().__init__(daemon=True)
        self.mailbox, self.prune_requested, self.stop_event = mailbox, threading.Event(), threading.Event()
        self.signal_lock = threading.Lock()

    def run(self) -> None:
        while not self.stop_event.wait(POLL_INTERVAL):
            with suppress(OSError):  # a network disk may be unavailable for a while
                commands = self.mailbox.read_commands()
                if "prune" in commands:
                    self.prune_requested.set()
                if "stop" in commands:
                    self.interrupt_process()
                    return

    def interrupt_process(self) -> None:
        """Send SIGTERM to this process, unless the cell has ended: the signal would hit the next one."""
        with self.signal_lock:
            if not self.stop_event.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> "MailboxListener":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.signal_lock:
            self.stop_event.set()
