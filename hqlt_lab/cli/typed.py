"""The next command, told whole from what was typed."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape

from hqlt_lab.registry import included, listed_here
from hqlt_lab.secrets import parted, scrubbed
from hqlt_lab.study.store import is_study

if TYPE_CHECKING:
    from hqlt_lab.study.record import Record


def elsewhere(file: Path, runs: Path) -> str:
    """A study that is not here, but beside its file, in a sentence; else nothing."""
    beside = file.parent / "runs"
    if is_study(runs / "studies" / file.stem) or not is_study(beside / "studies" / file.stem):
        return ""
    return f"There is nothing of it in {runs}; but there is in {beside}: --runs {beside}"


class Typed(NamedTuple):
    """What was typed, so that the next command can be told whole."""

    file: Path
    change: list[str]
    runs: Path
    tracking: str | None = None
    chosen: tuple[str, ...] = ()  # which cells, for the verb that was typed

    def anew(self, records: "Iterable[Record]", whole: bool = True) -> str:
        """The command that trains the arms whose cells were made by other code than today's; nothing where none was.

        `whole`: these records are all of the study's.
        """
        arms: dict[str, bool] = {}
        for record in records:
            arm = record.arm.split(", ")[0]
            arms[arm] = arms.get(arm, False) or bool(record.changed)
        some = ("--only", ",".join(f"arm={arm}" for arm, old in arms.items() if old))
        chosen = ("--again", *(() if whole and all(arms.values()) else some))
        return self._replace(chosen=chosen).with_verb("run") if any(arms.values()) else ""

    def with_verb(self, verb: str) -> str:
        """hqlt --with my_rule.py ui FILE --set ... --runs ..., to be printed: its brackets are no markup"""
        known = {file.resolve() for file in listed_here()}
        outside = [word for file in included() if file not in known for word in ("--with", os.path.relpath(file))]
        words = [word for one in self.change for word in ("--set", one)]
        words += ["--runs", str(self.runs)] if self.runs != Path("runs") else []
        words += self.chosen if verb == "run" else ()
        if self.tracking and verb in ("run", "ui"):
            words += ["--tracking", scrubbed(parted(self.tracking).address)]
        return escape(shlex.join(["hqlt", *outside, verb, str(self.file), *words]))
