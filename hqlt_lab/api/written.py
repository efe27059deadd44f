"""A report on disk, with how to make it again."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS
from hqlt_lab.registry import included
from hqlt_lab.study.store import Store

if TYPE_CHECKING:
    from hqlt_lab.report.page import Making
    from hqlt_lab.report.report import Report
    from hqlt_lab.report.saved import Saved


def save_report(
    made: "Report",
    file: str | Path,
    folder: str | Path | None = None,
    *,
    change: Sequence[str] = (),
    runs: str | Path = RUNS,
) -> "Saved":
    """Write a report with all its files and how to make it again: into this folder, or into the study's own."""
    store = Store(runs, made.experiment.name)
    return made.save(Path(folder or store.folder), making_of(Path(file), change, runs, store))


def making_of(file: Path, change: Sequence[str], runs: str | Path, store: Store) -> "Making":
    """How the study can be made again, and what made it."""
    from hqlt_lab.report.page import Making
    from hqlt_lab.track.provenance import provenance

    outside = [word for one in included() for word in ("--with", os.path.relpath(one))]
    more = [word for one in change for word in ("--set", one)]
    more += ["--runs", str(runs)] if Path(runs) != RUNS else []
    commands = [shlex.join(["hqlt", *outside, verb, str(file), *more]) for verb in ("run", "report")]
    known = store.folder / "provenance.json"
    return Making(commands, json.loads(known.read_text()) if known.exists() else provenance(file.resolve().parent))
