"""Arguments and options that several commands share, each with one name, help text and completion."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from hqlt_lab.cli.terminal import completion
from hqlt_lab.redact import has_credentials, split_credentials
from hqlt_lab.registry import KINDS

logger = logging.getLogger(__name__)


def warn_about_password(uri: str | None) -> str | None:
    """Warn if a URI contains a password: other users can read command lines, and the shell keeps a history."""
    if uri and has_credentials(uri):
        variables = (
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            if split_credentials(uri).user
            else "MLFLOW_TRACKING_URI"
        )
        logger.warning(
            f"--tracking {uri}: other users can read a password on the command line. Set {variables} instead."
        )
    return uri


FileArgument = Annotated[
    Path, typer.Argument(help="An experiment file.", autocompletion=completion.complete_experiment_files)
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder of runs.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a setting of the experiment file, such as train.lr=0.001. Repeatable.",
        autocompletion=completion.complete_settings,
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Select cells by arm, seed or any axis, such as arm=NAME,seed=0. Repeatable. "
        "A value with a comma is quoted: 'arm=\"a, b\"'.",
        autocompletion=completion.complete_cell_filters,
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Number of cells trained at once. Default: as many as fit on the machine.")
]
TrackingOption = Annotated[
    str | None,
    typer.Option(
        help="MLflow's tracking URI. Default: $MLFLOW_TRACKING_URI, or mlflow.db in the folder of runs.",
        callback=warn_about_password,
    ),
]
CHECKED_KINDS_HELP = ", ".join(
    kind for kind in KINDS if kind != "launcher"
)  # kinds with a template and conformance checks
KindArgument = Annotated[str, typer.Argument(help=CHECKED_KINDS_HELP, autocompletion=completion.complete_kinds)]


def add_workers_override(overrides: list[str] | None, workers: int | None) -> list[str]:
    """Return the --set overrides, with --workers appended as one of them."""
    return [*(overrides or []), *([f"launcher.workers={workers}"] if workers else [])]


def json_option(keys: str) -> Any:
    """Return the --json option, whose help text lists the keys that it prints."""
    return typer.Option("--json", help=f"Print JSON: {keys}")
