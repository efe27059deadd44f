"""The verbs that look at studies and tidy them: status, logs, forget, ui."""

import signal
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len, set_cell_size
from rich.markup import escape

from hqlt_lab.cli import completion
from hqlt_lab.cli.options import FileArgument, OnlyOption, RunsOption, SetOption, TrackingOption, for_programs
from hqlt_lab.cli.screen import aside, console, warn
from hqlt_lab.cli.typed import Typed, elsewhere
from hqlt_lab.errors import StoreError
from hqlt_lab.words import in_json, in_time

if TYPE_CHECKING:
    from hqlt_lab.study.record import Record

RECORD = (
    "key, arm, seed, levels, point, counts, state, attempts, why, step, metrics, seconds, tokens_per_second, "
    "parameters, state_bytes, flops_per_token, errors, made_by, repeatable, code, changed, folder, run."
)


def status(
    file: FileArgument,
    change: SetOption = None,
    only: OnlyOption = None,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, for_programs(f"an entry per cell: {RECORD}")] = False,
) -> None:
    """How far a study is: every cell with its state, its key and what came of it."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import title_of

    found = api.status(file, change=change or (), only=only or (), runs=runs)
    if as_json:
        print(in_json(found.records))
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
    at_work = f"At work on it: {'; '.join(found.workers)}." if found.workers else "Nobody is at work on it."
    console.print(f"{told}. {at_work}", soft_wrap=True, markup=False, highlight=False)
    if old := made_by_other_code(found.records):
        warn(old)
        console.print(f"    {Typed(file, change or [], runs).anew(found.records, whole=not only)}", soft_wrap=True)
    if hint := elsewhere(file, runs):
        warn(hint, aside)


def made_by_other_code(records: "Sequence[Record]") -> str:
    """How many finished cells, and by which code; nothing where it is today's."""
    old = [record for record in records if record.changed]
    names = dict.fromkeys("the lab's own" if name == "lab" else name for record in old for name in record.changed)
    cells = "1 cell was" if len(old) == 1 else f"{len(old)} cells were"
    return f"{cells} made by other code than today's ({', '.join(names)}). Train anew with" if old else ""


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other, the last as long as it is; rich takes ten seconds for ten thousand lines."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(set_cell_size, cells[:-1], widths)) + f"  {cells[-1]}".rstrip() for cells in lines]


def logs(
    cell: Annotated[
        str,
        typer.Argument(
            help="A cell: the beginning of its key, its folder or its MLflow run.", autocompletion=completion.cells
        ),
    ],
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, for_programs("folder, log, process: what the cell and its process printed.")] = False,
) -> None:
    """What a cell printed, attempt by attempt, tracebacks included."""
    from hqlt_lab import api

    folder = api.folder_of(cell, runs)
    said = {name: file.read_text() if (file := folder / name).exists() else "" for name in ("log.txt", "process.log")}
    if as_json:
        print(in_json({"folder": folder, "log": said["log.txt"], "process": said["process.log"]}))
        return
    print("".join(said.values()) or "It printed nothing.\n", end="")
    aside.print(f"All of it is in {escape(str(folder))}", soft_wrap=True, style="dim")


def forget(
    file: FileArgument,
    only: OnlyOption = None,
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Annotated[bool, for_programs(f"an entry per cell that was set aside: {RECORD}")] = False,
) -> None:
    """Mark what is known of cells as superseded, so that `hqlt run` trains them anew.  Nothing is deleted."""
    from hqlt_lab import api
    from hqlt_lab.cli.board import title_of

    records = api.status(file, change=change or (), only=only or (), runs=runs).records
    tried = [one for one in records if one.attempts and one.state != "superseded"]
    if not tried:
        print("[]") if as_json else console.print("None of these cells was tried yet.")
        return
    if not yes:
        question = f"Set aside {len(tried)} cells, from {title_of(tried[0])} to {title_of(tried[-1])}?"
        typer.confirm(question, abort=True, err=True)
    forgotten = api.forget(file, change=change or (), only=only or (), runs=runs)
    if as_json:
        print(in_json(forgotten))
        return
    anew = Typed(file, change or [], runs).with_verb("run")
    console.print(f"{len(forgotten)} cells are superseded. Train them anew with\n    {anew}", soft_wrap=True)


def ui(
    file: Annotated[
        Path | None,
        typer.Argument(help="An experiment file, to be led to its runs.", autocompletion=completion.experiment_files),
    ] = None,
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: 5000, or another one if that is in use.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0: on every network, where all who reach it can change runs.")
    ] = "127.0.0.1",
) -> None:
    """Browse all runs in MLflow's UI, on this machine alone unless --host says otherwise.  Ctrl-C ends it."""
    from hqlt_lab import api
    from hqlt_lab.study.store import studies_in
    from hqlt_lab.track import doors
    from hqlt_lab.track.ports import PORT, port_for
    from hqlt_lab.track.server import serve

    tracker = api.tracker_of(runs, tracking)
    if tracker.is_empty and not studies_in(runs):
        if file:
            api.load_experiment(file, change or ())  # one that cannot be read is not to be run either
        raise StoreError(f"{runs}: there are no runs to look at. Begin with: hqlt run {file or 'FILE'}")
    if file and (behind := api.catch_up(file, change=change or (), runs=runs, tracking=tracking)):
        warn(behind)
    if not tracker.served:
        port, asked = port_for(host, port), port
        if asked is None and port != PORT:
            console.print(f"Port {PORT} is in use; this is at {port}.")
        if doors.is_open(host):
            warn(doors.warning(host))
    console.print("The server takes some seconds to start ...")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # is Ctrl-C here: no server is left behind
    with suppress(KeyboardInterrupt), serve(tracker, port, host) as address:
        for name, link in api.links(address, runs, file):
            console.print(f"{name}: {link}", soft_wrap=True)
        console.print(f"All of MLflow: {address}   Ctrl-C ends it.", soft_wrap=True)
        threading.Event().wait()
