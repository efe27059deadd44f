"""The verb that hands a trained language model on."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from hqlt_lab.cli.experiments import RunsOption

console = Console()


def export(
    target: Annotated[
        str, typer.Argument(help="A trained cell whose task is language: its key, folder or MLflow run.")
    ],
    folder: Annotated[Path, typer.Argument(help="The folder to make; an older export there is replaced.")],
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="The precision of the weights.")
    ] = "float32",
    runs: RunsOption = Path("runs"),
) -> None:
    """Write a language model as a folder of Hugging Face: configuration, safetensors, tokenizer, model card."""
    from hqlt_lab import api

    written = api.export(target, folder, dtype, runs)
    for note in written.notes:
        console.print(f"[yellow]{escape(note)}[/yellow]", soft_wrap=True)
    console.print(f"{escape(str(folder))}: {', '.join(sorted(file.name for file in folder.iterdir()))}", soft_wrap=True)
    console.print("\nNext:", f'    hqlt generate {escape(str(folder))} --prompt "Once upon"', sep="\n", soft_wrap=True)
