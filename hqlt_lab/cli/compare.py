"""hqlt compare: what differs between cells, between studies, or between a study and what was published."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hqlt_lab.cli import completion
from hqlt_lab.cli.options import RunsOption, SetOption, for_programs
from hqlt_lab.cli.screen import console, whole


def compare(
    things: Annotated[
        list[str],
        typer.Argument(
            help="Cells (key, folder, MLflow run) or studies (file, name); the first is the reference.",
            autocompletion=completion.comparable,
        ),
    ],
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    as_json: Annotated[
        bool,
        for_programs(
            "things, and of each section (settings, code, results; of published values published alone) what is said "
            "and the entries."
        ),
    ] = False,
) -> None:
    """What differs in settings, code and results.  A single file is compared with its published values."""
    from hqlt_lab import api
    from hqlt_lab.report.render import terminal

    found = api.compare(things, change=change or (), runs=runs)
    if as_json or markdown:
        print(found.json() if as_json else found.markdown(), end="")
        return
    for section in found.sections:
        console.print(f"[bold]{section.name.capitalize()}[/bold]")
        for sentence in section.said:
            console.print(escape(sentence), soft_wrap=True)
        if section.table:
            whole(terminal("", section.table))
