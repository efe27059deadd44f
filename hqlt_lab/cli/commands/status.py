"""The commands that inspect studies and supersede cells: `hqlt status`, `hqlt logs` and `hqlt forget`."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len, set_cell_size

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, remove_markup
from hqlt_lab.cli.terminal.next_command import NextCommand, hint_other_runs_folder
from hqlt_lab.cli.terminal.shared_options import FileArgument, OnlyOption, RunsOption, SetOption, json_option
from hqlt_lab.formatting import dump_json, format_duration, pluralize_count

if TYPE_CHECKING:
    from hqlt_lab.study.ledger.cell_record import CellRecord

logger = logging.getLogger(__name__)

RECORD_KEYS = (
    "key, arm, seed, levels, point, is_reported, state, attempts, why, step, metrics, seconds, tokens_per_second, "
    "parameters, state_bytes, flops_per_token, errors, protocols, repeatable, code, changed, folder, run, warnings."
)


def show_status(
    file: FileArgument,
    overrides: SetOption = None,
    only: OnlyOption = None,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, json_option(f"an entry per cell: {RECORD_KEYS}")] = False,
) -> None:
    """Show the progress of a study: every cell with its key, state and result."""
    from hqlt_lab import api
    from hqlt_lab.study.progress_tracker import cell_title

    status = api.read_status(file, overrides=overrides or (), only=only or (), runs=runs)
    if as_json:
        print(dump_json(status.records))
        return
    rows = [("cell", "key", "state", "tries", "step", "time", "")]
    for record in status.records:
        result = record.why or "  ".join(
            f"{name} {record.metrics[name]:.4g}" for name in status.reported_metrics if name in record.metrics
        )
        duration = format_duration(record.seconds) if record.seconds else ""
        numbers = (str(record.attempts or ""), str(record.step or ""), duration)
        rows.append((cell_title(record), record.key, record.state, *numbers, result))
    print("\n".join(align_columns(rows)))
    states = Counter(record.state for record in status.records)
    state_counts = ", ".join(f"{count} {state}" for state, count in states.items())
    workers = (
        f"Processes running this study: {'; '.join(status.workers)}."
        if status.workers
        else "No process is running this study."
    )
    console.print(f"{state_counts}. {workers}", soft_wrap=True, markup=False, highlight=False)
    if status.looks:
        console.print(status.looks, soft_wrap=True, markup=False, highlight=False)
    if outdated := outdated_cells_message(status.records):
        retrain = NextCommand(file, overrides or [], runs).retrain_command(status.records, is_whole_study=not only)
        logger.warning(f"{outdated}\n    {remove_markup(retrain)}")
    if hint := hint_other_runs_folder(file, runs):
        logger.warning(hint)


def outdated_cells_message(records: "Sequence[CellRecord]") -> str:
    """Return how many finished cells were trained with a different version of the code; "" if none.

    The message names the sources that differ.
    """
    outdated = [record for record in records if record.changed]
    names = dict.fromkeys("hqlt_lab" if name == "lab" else name for record in outdated for name in record.changed)
    cells = "1 cell was" if len(outdated) == 1 else f"{len(outdated)} cells were"
    return (
        f"{cells} trained with a different version of the code ({', '.join(names)}). Train again with"
        if outdated
        else ""
    )


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad all columns but the last to equal width; rich.table takes ten seconds for ten thousand rows."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(set_cell_size, cells[:-1], widths)) + f"  {cells[-1]}".rstrip() for cells in rows]


def show_logs(
    cell: Annotated[
        str,
        typer.Argument(
            help="A cell: its key or the start of it, its folder or its MLflow run.",
            autocompletion=completion.complete_cells,
        ),
    ],
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, json_option("folder, log (output of the cell), process (output of its process).")] = False,
) -> None:
    """Print the log of a cell: the output of every attempt, including tracebacks."""
    from hqlt_lab import api

    folder = api.find_cell_folder(cell, runs)
    logs = {name: file.read_text() if (file := folder / name).exists() else "" for name in ("log.txt", "process.log")}
    if as_json:
        print(dump_json({"folder": folder, "log": logs["log.txt"], "process": logs["process.log"]}))
        return
    print("".join(logs.values()) or "The log is empty.\n", end="")
    logger.info(f"The log files are in {folder}")


def forget_cells(
    file: FileArgument,
    only: OnlyOption = None,
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: Annotated[bool, json_option(f"an entry per superseded cell: {RECORD_KEYS}")] = False,
) -> None:
    """Mark results of cells as superseded, so that `hqlt run` trains the cells again.  Nothing is deleted."""
    from hqlt_lab import api
    from hqlt_lab.study.progress_tracker import cell_title

    experiment = api.load_experiment(file, overrides or ())
    records = api.read_status(experiment, only=only or (), runs=runs).records
    attempted = [record for record in records if record.attempts and record.state != "superseded"]
    if not attempted:
        print("[]") if as_json else console.print("None of these cells has been started.")
        return
    if not yes:
        question = (
            f"Mark {pluralize_count(len(attempted), 'cell')} as superseded, from {cell_title(attempted[0])} to "
            f"{cell_title(attempted[-1])}?"
        )
        typer.confirm(question, abort=True, err=True)
    superseded = api.forget_study_cells(experiment, only=only or (), runs=runs)
    if as_json:
        print(dump_json(superseded))
        return
    run_command = NextCommand(file, overrides or [], runs).format_command("run")
    cells = "1 cell is" if len(superseded) == 1 else f"{len(superseded)} cells are"
    console.print(f"{cells} superseded. Train again with\n    {run_command}", soft_wrap=True)
