"""File-based mailbox: coordinator and worker exchange JSONL messages through the cell's folder.

commands.jsonl    written by the coordinator: train, then possibly "prune" or "stop"
replies.jsonl     written by the worker: started, then how the attempt ended

Each file has one writer, because network file systems do not let two machines append to the same file.  A token names
the attempt: a worker that finds it in commands.jsonl has access to the coordinator's disk, and messages of older
attempts are ignored.  Metrics are not sent here; the worker writes them to the folder anyway (`rundir.metrics`).
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hqlt_lab.rundir.jsonl import append_line, open_for_append, read_jsonl

COMMANDS_FILE, REPLIES_FILE = "commands.jsonl", "replies.jsonl"
TERMINAL_KINDS = ("ended", "pruned", "interrupted", "failed", "locked")
Reply = tuple[str, dict[str, Any]]


class FileMailbox:
    """The messages about one attempt."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder, self.token = folder, token

    @classmethod
    def create(cls, folder: Path) -> "FileMailbox":
        """Create the mailbox of a new attempt and send its `train` command.  Called by the coordinator."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPLIES_FILE).touch()  # network file systems may cache for a minute that a file does not exist
        mailbox = cls(folder, secrets.token_hex(8))
        mailbox.send_command("train")
        return mailbox

    def send_command(self, kind: str) -> None:
        """Write a command of the coordinator."""
        append_message(self.folder / COMMANDS_FILE, {"token": self.token, "kind": kind})

    def send_reply(self, kind: str, payload: dict[str, Any]) -> None:
        """Write a reply of the worker."""
        append_message(self.folder / REPLIES_FILE, {"token": self.token, "kind": kind, "payload": payload})

    def read_commands(self) -> set[str]:
        """Return the kinds of all commands sent so far."""
        return {message["kind"] for message in self.read_messages(COMMANDS_FILE)}

    def read_replies(self) -> dict[str, dict[str, Any]]:
        """Return all replies so far: kind -> payload."""
        return {message["kind"]: message["payload"] for message in self.read_messages(REPLIES_FILE)}

    def read_result(self) -> Reply | None:
        """Return the reply with the end of the attempt, if the worker has sent one."""
        replies = self.read_replies().items()
        return next(((kind, payload) for kind, payload in replies if kind in TERMINAL_KINDS), None)

    def read_messages(self, name: str) -> Iterator[dict[str, Any]]:
        """Return the messages of this attempt in one of the two files."""
        return (message for message in read_jsonl(self.folder / name)[0] if message.get("token") == self.token)


def append_message(file: Path, message: dict[str, Any]) -> None:
    """Append a message as one line; an incomplete last line, left by a crash, is cut off first."""
    _, end = read_jsonl(file)
    with open_for_append(file, end) as opened:
        append_line(opened, message)
