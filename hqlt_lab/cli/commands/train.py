"""`hqlt train`: train one cell of an experiment file in this process."""

import logging
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hqlt_lab.cli.terminal.console import console, stderr_console
from hqlt_lab.cli.terminal.shared_options import FileArgument, OnlyOption, RunsOption, SetOption, json_option
from hqlt_lab.cli.terminal.training_progress import RunProgress
from hqlt_lab.formatting import dump_json, format_duration

logger = logging.getLogger(__name__)


def train_cell(
    file: FileArgument,
    only: OnlyOption = None,
    overrides: SetOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train from the beginning, even if the cell was trained before.")
    ] = False,
    runs: RunsOption = Path("runs"),
    as_json: Annotated[
        bool,
        json_option(
            "key, arm, seed, folder, status, step, metrics, seconds, tokens_per_second, parameters, state_bytes, "
            "flops_per_token, errors, repeatable, message, warnings."
        ),
    ] = False,
) -> None:
    """Train one cell of an experiment file in this process, with live progress.  Run it again to resume."""
    from hqlt_lab.experiment.cell_filters import filter_cells
    from hqlt_lab.experiment.expand_cells import expand_plan
    from hqlt_lab.experiment.load_experiment import load_experiment

    experiment = load_experiment(file, overrides or [])
    matching_cells = filter_cells(expand_plan(experiment), only or [])
    key, cell = matching_cells[0]
    folder = runs / "single" / experiment.name / key
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    note = f" (the first of {len(matching_cells)} that match)" if len(matching_cells) > 1 else ""
    logger.info(f"{cell.arm}, seed {cell.seed}{note}   {folder}")
    from hqlt_lab.train.fit import fit

    with RunProgress(stderr_console, cell.train.steps) as progress:
        outcome = fit(cell, folder, progress.record_metrics)
    if as_json:
        print(dump_json({"key": key, "arm": cell.arm, "seed": cell.seed, "folder": folder, **asdict(outcome)}))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in outcome.metrics.items():
        table.add_row(name, f"{value:.4g}")
    console.print(table)
    console.print(
        f"{outcome.status} at step {outcome.step}: {format_duration(outcome.seconds)}. {outcome.message}".strip()
    )
