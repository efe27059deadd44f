"""Arguments and options that several verbs share: one meaning, one name, one sentence, one way to be completed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hqlt_lab.cli import completion
from hqlt_lab.cli.screen import aside, warn
from hqlt_lab.registry import KINDS
from hqlt_lab.secrets import holds_password, parted


def without_password(uri: str | None) -> str | None:
    """What is typed can be read by everybody on the machine, and stays in the shell's history."""
    if uri and holds_password(uri):
        place = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" if parted(uri).user else "MLFLOW_TRACKING_URI"
        warn(f"--tracking {uri}: a password on the command line can be read by others. Put it into {place}.", aside)
    return uri


FileArgument = Annotated[Path, typer.Argument(help="An experiment file.", autocompletion=completion.experiment_files)]
RunsOption = Annotated[Path, typer.Option("--runs", help="Where runs are kept.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change the file's base: train.lr=0.001. Repeatable.", autocompletion=completion.settings
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Choose cells: arm=NAME,seed=0, or any axis by its name. Repeatable.", autocompletion=completion.choices
    ),
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Cells at a time. Default: as many as fit the machine.")]
TrackingOption = Annotated[
    str | None,
    typer.Option(
        help="MLflow's tracking URI. Default: $MLFLOW_TRACKING_URI, or mlflow.db in the folder of runs.",
        callback=without_password,
    ),
]
WITH_PROMISES = ", ".join(kind for kind in KINDS if kind != "launcher")  # have a template, and are known to the kit
KindArgument = Annotated[str, typer.Argument(help=WITH_PROMISES, autocompletion=completion.kinds)]


def with_workers(change: list[str] | None, workers: int | None) -> list[str]:
    """--set, and what --workers says in its words."""
    return [*(change or []), *([f"launcher.workers={workers}"] if workers else [])]


def for_programs(shape: str) -> Any:
    """--json, with what it prints: the keys, so that they can be counted on."""
    return typer.Option("--json", help=f"For programs: {shape}")
