"""The verb that hands a trained language model on."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from hqlt_lab.cli import completion
from hqlt_lab.cli.options import RunsOption, for_programs
from hqlt_lab.cli.screen import console, warn
from hqlt_lab.words import in_json


def export(
    target: Annotated[
        str,
        typer.Argument(
            help="A trained cell whose task is language: its key, folder or MLflow run.",
            autocompletion=completion.cells,
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="The folder to make; an older export there is replaced.")],
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="The precision of the weights.")
    ] = "float32",
    runs: RunsOption = Path("runs"),
    as_json: Annotated[bool, for_programs("folder, files, notes.")] = False,
) -> None:
    """Write a language model as a folder of Hugging Face: configuration, safetensors, tokenizer, model card."""
    from hqlt_lab import api

    written = api.export(target, folder, dtype, runs)
    files = sorted(file.name for file in folder.iterdir())
    if as_json:
        print(in_json({"folder": folder, "files": files, "notes": written.notes}))
        return
    for note in written.notes:
        warn(note)
    console.print(f"{escape(str(folder))}: {', '.join(files)}", soft_wrap=True)
    console.print("\nNext:", f'    hqlt generate {escape(str(folder))} --prompt "Once upon"', sep="\n", soft_wrap=True)
