"""The complete command to type next, built from the arguments of the current one."""

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape

from hqlt_lab.redact import redact_secrets, split_credentials
from hqlt_lab.registry import list_loaded_files, list_project_files
from hqlt_lab.study.ledger.study_store import is_study_folder

if TYPE_CHECKING:
    from hqlt_lab.study.ledger.cell_record import CellRecord


def hint_other_runs_folder(file: Path, runs: Path) -> str:
    """Return a hint if the study is not in `runs` but in the folder `runs` beside its file; else ""."""
    other_runs = file.parent / "runs"
    if is_study_folder(runs / "studies" / file.stem) or not is_study_folder(other_runs / "studies" / file.stem):
        return ""
    return f"{runs} has no results of this study, but {other_runs} has: use --runs {other_runs}"


class NextCommand(NamedTuple):
    """Arguments of the current command that the suggested command repeats."""

    file: Path
    overrides: list[str]
    runs: Path
    tracking: str | None = None
    selection_arguments: tuple[str, ...] = ()  # which cells; repeated by `hqlt run` only

    def retrain_command(self, records: "Iterable[CellRecord]", is_whole_study: bool = True) -> str:
        """Return the command that retrains arms whose cells were trained with a different version of the code; or "".

        `is_whole_study`: the records are all cells of the study, so --only may be omitted if every arm is outdated.
        """
        from hqlt_lab.experiment.cell_filters import format_filters

        outdated_by_arm: dict[str, bool] = {}
        for record in records:
            arm = record.arm.name
            outdated_by_arm[arm] = outdated_by_arm.get(arm, False) or bool(record.changed)
        if not any(outdated_by_arm.values()):
            return ""
        only = ("--only", format_filters("arm", [arm for arm, is_outdated in outdated_by_arm.items() if is_outdated]))
        selection = ("--again", *(() if is_whole_study and all(outdated_by_arm.values()) else only))
        return self._replace(selection_arguments=selection).format_command("run")

    def retry_commands(self, records: "Sequence[CellRecord]") -> list[str]:
        """Return the commands that together retrain exactly the cells that failed or diverged."""
        from hqlt_lab.study.suggest_retry_filters import list_retry_filters

        selections = (("--again", *(("--only", only) if only else ())) for only in list_retry_filters(records))
        return [self._replace(selection_arguments=selection).format_command("run") for selection in selections]

    def format_command(self, command: str) -> str:
        """Return "hqlt --with my_rule.py ui FILE --set ... --runs ...", escaped for rich markup."""
        project_files = {file.resolve() for file in list_project_files()}
        with_options = [
            argument
            for file in list_loaded_files()
            if file not in project_files
            for argument in ("--with", os.path.relpath(file))
        ]
        arguments = [argument for override in self.overrides for argument in ("--set", override)]
        arguments += ["--runs", str(self.runs)] if self.runs != Path("runs") else []
        arguments += self.selection_arguments if command == "run" else ()
        if self.tracking and command in ("run", "ui"):
            arguments += ["--tracking", redact_secrets(split_credentials(self.tracking).url)]
        return escape(shlex.join(["hqlt", *with_options, command, str(self.file), *arguments]))
