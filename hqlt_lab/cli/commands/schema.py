"""`hqlt schema`: the JSON Schema of experiment files."""

from pathlib import Path
from typing import Annotated

import typer

from hqlt_lab.cli.terminal.console import console
from hqlt_lab.formatting import dump_json


def write_schema(
    into: Annotated[Path | None, typer.Option(help="Write the schema to this file instead of printing it.")] = None,
) -> None:
    """Print the JSON Schema of experiment files, for completion and validation in editors."""
    from hqlt_lab.experiment.json_schema import build_json_schema

    text = dump_json(build_json_schema())
    if into is None:
        print(text)
        return
    into.write_text(text + "\n")
    console.print(f"{into} was written. Start a YAML file with the line\n    # yaml-language-server: $schema={into}")
