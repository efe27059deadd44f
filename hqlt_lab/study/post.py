"""Words between a coordinator and a worker that share nothing but the cell's folder: two files of JSON lines.

orders.jsonl      the coordinator's: train, then perhaps "give up" or "stop"
answers.jsonl     the worker's: taken, then how it ended

Each file has one writer, because no network disk lets two machines append to one.  A token names the attempt: a worker
that reads it in the orders sees the coordinator's disk, and words of an older attempt are nobody's concern.  Points
of curves are not told here: they are in the folder anyway (`track.spool`).
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hqlt_lab.train.lines import add_line, read_lines, write_on

ORDERS, ANSWERS = "orders.jsonl", "answers.jsonl"
OVER = ("ended", "pruned", "interrupted", "failed")
Said = tuple[str, dict[str, Any]]


class Post:
    """What is said about one attempt."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder, self.token = folder, token

    @classmethod
    def open(cls, folder: Path) -> "Post":
        """The coordinator's, for an attempt that begins."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ANSWERS).touch()  # a network disk may remember for a minute that a file was not there
        post = cls(folder, secrets.token_hex(8))
        post.order("train")
        return post

    def order(self, word: str) -> None:
        """The coordinator speaks."""
        append(self.folder / ORDERS, {"token": self.token, "word": word})

    def answer(self, word: str, told: dict[str, Any]) -> None:
        """The worker speaks."""
        append(self.folder / ANSWERS, {"token": self.token, "word": word, "told": told})

    def orders(self) -> set[str]:
        """What the coordinator has said so far."""
        return {line["word"] for line in self.lines(ORDERS)}

    def answers(self) -> dict[str, dict[str, Any]]:
        """What the worker has said so far."""
        return {line["word"]: line["told"] for line in self.lines(ANSWERS)}

    def verdict(self) -> Said | None:
        """How it ended, if the worker came to say so."""
        return next(((word, told) for word, told in self.answers().items() if word in OVER), None)

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Those of this attempt."""
        return (line for line in read_lines(self.folder / name)[0] if line.get("token") == self.token)


def append(file: Path, told: dict[str, Any]) -> None:
    """A whole line behind whole lines: what a crash tore is cut off."""
    _, end = read_lines(file)
    with write_on(file, end) as opened:
        add_line(opened, told)
