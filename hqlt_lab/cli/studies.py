"""The verbs about whole studies: run, status, logs, forget, ui."""

import json
import os
import shlex
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape

from hqlt_lab.cli.experiments import FileArgument, OnlyOption, RunsOption, SetOption
from hqlt_lab.cli.reports import show
from hqlt_lab.registry import included
from hqlt_lab.words import in_time

if TYPE_CHECKING:
    pass

TrackingOption = Annotated[
    str | None,
    typer.Option(help="MLflow's tracking URI. Default: $MLFLOW_TRACKING_URI, or mlflow.db in the folder of runs."),
]
console = Console()


def run(
    file: FileArgument,
    only: OnlyOption = None,
    change: SetOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train at most so many cells this time.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Train the chosen cells anew, even if they are done.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time. Default: as many as fit the machine.")
    ] = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
) -> None:
    """Train every cell of a file that is not done yet, and report.  Run it again to resume."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import Board

    change = [*(change or []), *([f"launcher.workers={workers}"] if workers else [])]
    experiment = api.load_experiment(file, change)
    console.print(f"[bold]{escape(experiment.question)}[/bold]")
    for warning in experiment.warnings:
        console.print(f"[yellow]{escape(warning)}[/yellow]")
    board = Board(console, experiment.measure)
    told = Typed(file, change, runs, tracking)
    try:
        done = api.run(
            file, change=change, only=only or (), limit=limit, again=again, runs=runs, tracking=tracking, view=board
        )
    except KeyboardInterrupt:  # before the first cell began
        stopped(told)
    finally:
        board.close()
    show(done.report)
    if done.untracked:
        console.print(f"[yellow]{escape(done.untracked)}[/yellow]", soft_wrap=True)
    for trouble in done.undrawn:
        console.print(f"[yellow]{escape(trouble)}[/yellow]", soft_wrap=True)
    for trouble in done.unanswered:
        console.print(f"[yellow]{escape(trouble)}[/yellow]", soft_wrap=True)
    if not done.complete:
        stopped(told)
    console.print(f"\nNext:\n    {told.with_verb('ui')}    # every curve and run in the browser", soft_wrap=True)
    console.print(f"    {told.with_verb('report')}    # this table again; --latex, --json, ...", soft_wrap=True)
    console.print(f"    {shown_path(done.folder / 'report.html')}    # a page with figures", soft_wrap=True)
    if done.unanswered or any(row.unfinished.get("failed") for row in done.report.rows):
        raise typer.Exit(1)


def shown_path(path: Path) -> str:
    """From here, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Typed(NamedTuple):
    """What was typed, so that the next command can be told whole."""

    file: Path
    change: list[str]
    runs: Path
    tracking: str | None = None

    def with_verb(self, verb: str) -> str:
        """hqlt --with my_rule.py ui FILE --set ... --runs ..., to be printed: its brackets are no markup"""
        outside = [word for file in included() for word in ("--with", os.path.relpath(file))]
        words = [word for one in self.change for word in ("--set", one)]
        words += ["--runs", str(self.runs)] if self.runs != Path("runs") else []
        words += ["--tracking", self.tracking] if self.tracking and verb in ("run", "ui") else []
        return escape(shlex.join(["hqlt", *outside, verb, str(self.file), *words]))


def stopped(told: Typed) -> NoReturn:
    """The end of a run that somebody ended."""
    console.print(f"\nStopped. Nothing is lost; go on with\n    {told.with_verb('run')}", soft_wrap=True)
    raise typer.Exit(130)


def status(
    file: FileArgument,
    change: SetOption = None,
    only: OnlyOption = None,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one entry per cell.")] = False,
) -> None:
    """How far a study is: every cell with its state, its key and what came of it."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import title_of

    found = api.status(file, change=change or (), only=only or (), runs=runs)
    if as_json:
        print(json.dumps([asdict(record) for record in found.records], indent=1, default=str))
        return
    lines = [("cell", "key", "state", "tries", "step", "time", "")]
    for record in found.records:
        told = record.why or "  ".join(
            f"{name} {record.metrics[name]:.4g}" for name in found.report if name in record.metrics
        )
        took = in_time(record.seconds) if record.seconds else ""
        numbers = (str(record.attempts or ""), str(record.step or ""), took)
        lines.append((title_of(record), record.key, record.state, *numbers, told))
    print("\n".join(aligned(lines)))
    states = Counter(record.state for record in found.records)
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    console.print(f"{told}. {'Somebody is at work on it.' if found.busy else 'Nobody is at work on it.'}")


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other, the last as long as it is; rich takes ten seconds for ten thousand lines."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(set_cell_size, cells[:-1], widths)) + f"  {cells[-1]}".rstrip() for cells in lines]


def logs(
    cell: Annotated[str, typer.Argument(help="A cell: the beginning of its key, its folder or its MLflow run.")],
    runs: RunsOption = Path("runs"),
) -> None:
    """What a cell printed, attempt by attempt, tracebacks included."""
    from hqlt_lab import api

    folder = api.folder_of(cell, runs)
    for name in ("log.txt", "process.log"):
        if (folder / name).exists():
            print((folder / name).read_text(), end="")
    console.print(f"All of it is in {folder}", soft_wrap=True, style="dim")


def forget(
    file: FileArgument,
    only: OnlyOption = None,
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Mark what is known of cells as superseded, so that `hqlt run` trains them anew.  Nothing is deleted."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import title_of

    records = api.status(file, change=change or (), only=only or (), runs=runs).records
    tried = [one for one in records if one.attempts and one.state != "superseded"]
    if not tried:
        console.print("None of these cells was tried yet.")
        return
    if not yes:
        typer.confirm(f"Set aside {len(tried)} cells, from {title_of(tried[0])} to {title_of(tried[-1])}?", abort=True)
    forgotten = api.forget(file, change=change or (), only=only or (), runs=runs)
    anew = Typed(file, change or [], runs).with_verb("run")
    console.print(f"{len(forgotten)} cells are superseded. Train them anew with\n    {anew}", soft_wrap=True)


def ui(
    file: Annotated[Path | None, typer.Argument(help="An experiment file, to be led to its runs.")] = None,
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    port: Annotated[int, typer.Option(help="Another one is taken if this is in use.")] = 5000,
) -> None:
    """Browse all runs in MLflow's UI, on this machine alone.  Ctrl-C ends it."""
    from hqlt_lab import api
    from hqlt_lab.track.server import serve

    if file and (behind := api.catch_up(file, change=change or (), runs=runs, tracking=tracking)):
        console.print(f"[yellow]{escape(behind)}[/yellow]", soft_wrap=True)
    console.print("The server takes some seconds to start ...")
    with suppress(KeyboardInterrupt), serve(api.tracker_of(runs, tracking), port) as address:
        for name, link in api.links(address, runs, file):
            console.print(f"{name}: {link}", soft_wrap=True)
        console.print(f"All of MLflow: {address}   Ctrl-C ends it.", soft_wrap=True)
        threading.Event().wait()
