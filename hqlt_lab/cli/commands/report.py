"""`hqlt report`: the report of a study, as a table or in a file format."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from hqlt_lab.cli.terminal.console import console, print_caveat, print_table, remove_markup
from hqlt_lab.cli.terminal.next_command import NextCommand, hint_other_runs_folder
from hqlt_lab.cli.terminal.shared_options import FileArgument, RunsOption, SetOption, json_option
from hqlt_lab.errors import ConfigError, ConfigIssue

if TYPE_CHECKING:
    from hqlt_lab.report.study_report import Report

logger = logging.getLogger(__name__)

REPORT_KEYS = "name, question, answer, warnings, measure, seeds, looks, rows, effects, importance, cells."


def show_report(
    file: FileArgument,
    overrides: SetOption = None,
    runs: RunsOption = Path("runs"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV with a line per arm and metric, in full precision.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables.")] = False,
    as_json: Annotated[bool, json_option(f"everything: {REPORT_KEYS}")] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write an HTML page with figures into the study's folder and print its path.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Write all formats and the figures into this folder.")] = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Also show the importance of each hyperparameter (fANOVA).")
    ] = False,
) -> None:
    """Show the results of a study: the answer, the table and its caveats; also while it runs."""
    from hqlt_lab import api
    from hqlt_lab.api.report_files import find_reproduction

    reject_several_formats(
        save, {"--markdown": markdown, "--csv": csv, "--latex": latex, "--json": as_json, "--html": html}
    )
    if importance and (csv or latex):
        message, hint = "CSV and LaTeX tables do not contain it.", "Use --json, --markdown, --html, or no format."
        raise ConfigError.at("--importance", "format_without_importance", message, hint)
    report = api.make_report(file, overrides=overrides or (), runs=runs)
    report = report.with_importance() if importance else report
    if html or save:
        saved = api.save_report(report, file, save, overrides=overrides or (), runs=runs)
        for message in saved.figure_errors:
            logger.warning(message)
        for path in saved.files:
            if save or path.suffix == ".html":
                print(path)
        return
    if markdown:
        print(report.to_markdown(find_reproduction(file, overrides=overrides or (), runs=runs)), end="")
    elif csv:
        print(report.to_csv(), end="")
    elif latex:
        print(report.to_latex(), end="")
    elif as_json:
        print(report.to_json(), end="")
    else:
        print_report(report)
        if not any(record.attempts for record in report.records):
            run_command = NextCommand(file, overrides or [], runs).format_command("run")
            logger.info(f"No cell of this study has been trained. Train it with\n    {remove_markup(run_command)}")
            if hint := hint_other_runs_folder(file, runs):
                logger.warning(hint)


def reject_several_formats(save: Path | None, formats: dict[str, bool]) -> None:
    """Raise ConfigError if several formats would be printed to the same stream."""
    requested = [option for option, is_requested in formats.items() if is_requested]
    if len(requested) > 1 and save is None:
        message, hint = "only one format can be printed.", "--save FOLDER writes all of them."
        raise ConfigError(ConfigIssue(requested[0], "several_formats", message, hint, other_paths=tuple(requested[1:])))


def print_report(report: "Report") -> None:
    """Print the question, the answer, the tables and the caveats of a report."""
    answer = report.answer
    console.print(f"\n[italic]{escape(report.experiment.question)}[/italic]", soft_wrap=True)
    console.print(f"[bold]{escape(answer.summary)}[/bold]\n", soft_wrap=True)
    if answer.comparisons_heading:
        lines = [answer.comparisons_heading, *(f"- {item}" for item in answer.comparisons)]
        console.print(escape("\n".join(lines)) + "\n", soft_wrap=True)
    for table in report.to_rich_tables(console.width):
        print_table(table)
    if report.warnings:
        console.print("\n[bold]Caveats[/bold]")
    for warning in report.warnings:
        print_caveat(f"- {warning}")
