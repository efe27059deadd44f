"""`hqlt export`: write a trained language model as a folder in Hugging Face's format."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console
from hqlt_lab.cli.terminal.shared_options import RunsOption, json_option
from hqlt_lab.formatting import dump_json

logger = logging.getLogger(__name__)


def export_model(
    target: Annotated[
        str,
        typer.Argument(
            help="A trained cell whose task is language: its key, folder or MLflow run.",
            autocompletion=completion.complete_cells,
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder to write; an existing export is replaced.")],
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="The precision of the weights.")
    ] = "float32",
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, json_option("folder, files, notes.")] = False,
) -> None:
    """Export a language model in Hugging Face format: configuration, safetensors, tokenizer, model card."""
    from hqlt_lab import api

    exported = api.export(target, folder, dtype, runs)
    files = sorted(file.name for file in folder.iterdir())
    if as_json:
        print(dump_json({"folder": folder, "files": files, "notes": exported.notes}))
        return
    for note in exported.notes:
        logger.warning(note)
    console.print(f"{escape(str(folder))}: {', '.join(files)}", soft_wrap=True)
    console.print("\nNext:", f'    hqlt generate {escape(str(folder))} --prompt "Once upon"', sep="\n", soft_wrap=True)
