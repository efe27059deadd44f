"""hqlt report: what a study says, in every form.  Also how its table is printed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from hqlt_lab.cli.options import FileArgument, RunsOption, SetOption, for_programs
from hqlt_lab.cli.screen import aside, console, warn, whole
from hqlt_lab.cli.typed import Typed, elsewhere
from hqlt_lab.errors import ConfigError

if TYPE_CHECKING:
    from hqlt_lab.report.report import Report

KEYS = "name, question, answer, warnings, measure, seeds, rows, effects, importance, cells."


def report(
    file: FileArgument,
    change: SetOption = None,
    runs: RunsOption = Path("runs"),
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV, a line per arm and metric, in full precision.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="As a table for a paper.")] = False,
    as_json: Annotated[bool, for_programs(f"everything: {KEYS}")] = False,
    html: Annotated[
        bool, typer.Option("--html", help="As a page with figures, in the study's folder; its path is printed.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Write all of these and the figures into this folder.")] = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Also which hyper-parameter explains how much (fANOVA).")
    ] = False,
) -> None:
    """The table of a study, what to be careful about, and the answer; also while it runs."""
    from hqlt_lab import api

    one_form(save, {"--markdown": markdown, "--csv": csv, "--latex": latex, "--json": as_json, "--html": html})
    if importance and (csv or latex):
        raise ConfigError(
            "--importance: these tables have no place for it. Use --json, --markdown, --html, or neither."
        )
    made = api.report(file, change=change or (), runs=runs)
    made = made.with_importance() if importance else made
    if html or save:
        saved = api.save_report(made, file, save, change=change or (), runs=runs)
        for trouble in saved.troubles:
            print(trouble, file=sys.stderr)
        for path in saved.files:
            if save or path.suffix == ".html":
                print(path)
        return
    forms = {made.markdown: markdown, made.csv: csv, made.latex: latex, made.json: as_json}
    asked = [form for form, wanted in forms.items() if wanted]
    for form in asked:
        print(form(), end="")
    if not asked:
        show(made)
        if not any(record.attempts for record in made.records):
            begin = Typed(file, change or [], runs).with_verb("run")
            aside.print(f"Nothing of it was trained yet. Begin with\n    {begin}", soft_wrap=True)
            if hint := elsewhere(file, runs):
                warn(hint, aside)


def one_form(save: Path | None, forms: dict[str, bool]) -> None:
    """Two forms in one stream can be read by nobody."""
    asked = [form for form, wanted in forms.items() if wanted]
    if len(asked) > 1 and save is None:
        raise ConfigError(f"{' '.join(asked)}: one form at a time is printed; --save FOLDER writes all of them.")


def show(report: "Report") -> None:
    """The table, what to be careful about, and the answer."""
    console.print()
    for table in report.terminal(console.width):
        whole(table)
    for warning in report.warnings:
        warn(warning)
    console.print(f"\n[bold]{escape(report.answer)}[/bold]", soft_wrap=True)
