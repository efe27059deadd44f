"""hqlt compare: what differs between cells, between studies, or between a study and what was published."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hqlt_lab.cli.experiments import RunsOption, SetOption
from hqlt_lab.cli.reports import whole

console = Console()


def compare(
    things: Annotated[
        list[str],
        typer.Argument(help="Cells (key, folder, MLflow run) or studies (file, name); the first is the reference."),
    ],
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
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
