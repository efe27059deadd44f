"""The verbs that train studies: run, worker."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.markup import escape

from hqlt_lab.cli import completion
from hqlt_lab.cli.exits import Exit
from hqlt_lab.cli.options import (
    FileArgument,
    OnlyOption,
    RunsOption,
    SetOption,
    TrackingOption,
    WorkersOption,
    for_programs,
    with_workers,
)
from hqlt_lab.cli.reports import KEYS, show
from hqlt_lab.cli.screen import aside, console, warn
from hqlt_lab.cli.typed import Typed

if TYPE_CHECKING:
    from hqlt_lab.study.record import Record


def run(
    file: FileArgument,
    only: OnlyOption = None,
    change: SetOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train at most so many cells this time.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Train the chosen cells anew, even if they are done.")] = False,
    workers: WorkersOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[bool, for_programs(f"the report, with progress on standard error: {KEYS}")] = False,
) -> None:
    """Train every cell of a file that is not done yet, and report.  Run it again to resume."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import Board

    typed, change = change or [], with_workers(change, workers)
    experiment = api.load_experiment(file, change)
    out = aside if as_json else console
    out.print(f"[bold]{escape(experiment.question)}[/bold]", soft_wrap=True)
    for warning in experiment.warnings:
        warn(warning, out)
    board = Board(out, experiment.measure)
    chosen = [word for wish in only or () for word in ("--only", wish)]
    chosen += ["--limit", str(limit)] if limit else []
    chosen += ["--workers", str(workers)] if workers else []
    told = Typed(file, typed, runs, tracking, tuple(chosen))
    try:
        done = api.run(
            file, change=change, only=only or (), limit=limit, again=again, runs=runs, tracking=tracking, view=board
        )
    except KeyboardInterrupt:  # before the first cell began
        stopped(told)
    finally:
        board.close()
    print(done.report.json(), end="") if as_json else show(done.report)
    for trouble in (*([done.untracked] if done.untracked else []), *done.undrawn, *done.unanswered):
        warn(trouble, out)
    if not done.complete:
        stopped(told)
    if not as_json:
        next_commands(told, done.folder, done.report.records)
    if done.unanswered or any(row.unfinished.get("failed") or row.in_vain for row in done.report.rows):
        raise typer.Exit(Exit.NOT_ALL_WELL)


def worker(
    study: Annotated[
        Path,
        typer.Argument(
            help="An experiment file, or the name of a study in the folder of runs.",
            autocompletion=completion.studies_and_files,
        ),
    ],
    only: OnlyOption = None,
    change: SetOption = None,
    workers: WorkersOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
) -> None:
    """Join a study that several machines share, and train its cells until nothing is left to do for anybody.

    Every machine sees the folder of runs and the database that $HQLT_STORE names. Start as many as you like, at any
    time; stop or lose any of them, and the others go on with its cells.
    """
    from hqlt_lab import api
    from hqlt_lab.cli.board import Board

    file, change = api.study_file(study, runs), with_workers(change, workers)
    board = Board(console, api.load_experiment(file, change).measure)
    try:
        joined = api.worker(file, change=change, only=only or (), runs=runs, tracking=tracking, view=board)
    except KeyboardInterrupt:  # before the first cell began
        raise typer.Exit(Exit.STOPPED) from None
    finally:
        board.close()
    if joined.untracked:
        warn(joined.untracked)
    if not joined.complete:
        console.print("Stopped: its cells are saved, and whoever is left goes on with them.")
        raise typer.Exit(Exit.STOPPED)


def next_commands(told: "Typed", folder: Path, records: "Sequence[Record]") -> None:
    """Where to look now."""
    console.print("\nNext:")
    if failed := [record.key for record in records if record.state == "failed"]:
        logs = told._replace(file=Path(failed[0]), change=[])
        console.print(f"    {logs.with_verb('logs')}    # the traceback of the first that failed", soft_wrap=True)
    console.print(f"    {told.with_verb('ui')}    # every curve and run in the browser", soft_wrap=True)
    console.print(f"    {told.with_verb('report')}    # this table again; --latex, --json, ...", soft_wrap=True)
    console.print(f"    {escape(shown_path(folder / 'report.html'))}    # a page with figures", soft_wrap=True)
    if anew := told.anew(records):
        console.print(f"    {anew}    # what older code has trained, anew", soft_wrap=True)


def shown_path(path: Path) -> str:
    """From here, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def stopped(told: Typed) -> NoReturn:
    """The end of a run that somebody ended."""
    aside.print(f"\nStopped. Nothing is lost; go on with\n    {told.with_verb('run')}", soft_wrap=True)
    raise typer.Exit(Exit.STOPPED)
