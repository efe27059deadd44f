"""`hqlt compare`: differences between cells, between studies, or between a study and published values."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, print_table
from hqlt_lab.cli.terminal.shared_options import RunsOption, SetOption, json_option


def show_comparison(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="Cells (key, folder, MLflow run) or studies (file, name); the first is the reference.",
            autocompletion=completion.complete_comparison_targets,
        ),
    ],
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Annotated[
        bool,
        json_option(
            "targets; settings, code and results, or only published: the sentences and entries of each section."
        ),
    ] = False,
) -> None:
    """Compare settings, code and results of cells or studies; a single file is compared with its published values."""
    from hqlt_lab import api
    from hqlt_lab.report.render.text_tables import render_rich_table

    comparison = api.compare(targets, overrides=overrides or (), runs=runs)
    if as_json or markdown:
        print(comparison.to_json() if as_json else comparison.to_markdown(), end="")
        return
    for section in comparison.sections:
        console.print(f"[bold]{section.name.capitalize()}[/bold]")
        for sentence in section.sentences:
            console.print(escape(sentence), soft_wrap=True)
        if section.table:
            print_table(render_rich_table("", section.table))
