"""The commands that train studies: `hqlt run` and `hqlt worker`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.markup import escape

from hqlt_lab.cli.commands.report import REPORT_KEYS, print_report
from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, remove_markup, stderr_console
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.cli.terminal.next_command import NextCommand
from hqlt_lab.cli.terminal.shared_options import (
    FileArgument,
    OnlyOption,
    RunsOption,
    SetOption,
    TrackingOption,
    WorkersOption,
    add_workers_override,
    json_option,
)

if TYPE_CHECKING:
    from hqlt_lab.study.ledger.cell_record import CellRecord

logger = logging.getLogger(__name__)

MAX_RETRY_COMMANDS = 4  # commands for cells that failed or diverged, one per arm if one command cannot select them


def run_study(
    file: FileArgument,
    only: OnlyOption = None,
    overrides: SetOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train at most N cells in this run.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train the selected cells again, even if they are done.")
    ] = False,
    workers: WorkersOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
    as_json: Annotated[bool, json_option(f"the report, with progress on standard error: {REPORT_KEYS}")] = False,
) -> None:
    """Train all unfinished cells of an experiment file, and show the report.  Run it again to resume."""
    from hqlt_lab import api
    from hqlt_lab.cli.terminal.study_progress import StudyProgress

    set_options, overrides = overrides or [], add_workers_override(overrides, workers)
    experiment = api.load_experiment(file, overrides)
    progress = StudyProgress(stderr_console, experiment.measure, experiment.question, experiment.warnings)
    selection = [argument for cell_filter in only or () for argument in ("--only", cell_filter)]
    selection += ["--limit", str(limit)] if limit else []
    selection += ["--workers", str(workers)] if workers else []
    next_command = NextCommand(file, set_options, runs, tracking, tuple(selection))
    try:
        result = api.run(
            experiment,
            only=only or (),
            limit=limit,
            again=again,
            runs=runs,
            tracking=tracking,
            callback=progress,
        )
    except KeyboardInterrupt:  # before the first cell started
        exit_interrupted(next_command)
    finally:
        progress.close()
    print(result.report.to_json(), end="") if as_json else print_report(result.report)
    sync_warnings = [result.sync_warning] if result.sync_warning else []
    for message in (*sync_warnings, *result.figure_errors, *result.evaluation_errors):
        logger.warning(message)
    if not result.complete:
        exit_interrupted(next_command)
    if not as_json:
        print_next_commands(next_command, result.folder, result.report.records)
    if result.evaluation_errors or any(
        row.unfinished_counts.get("failed") or row.has_ended_without_result for row in result.report.rows
    ):
        raise typer.Exit(ExitCode.PARTIAL_FAILURE)


def join_study(
    study: Annotated[
        Path,
        typer.Argument(
            help="Experiment file, or name of a study in the folder of runs.",
            autocompletion=completion.complete_studies_and_files,
        ),
    ],
    only: OnlyOption = None,
    overrides: SetOption = None,
    workers: WorkersOption = None,
    runs: RunsOption = Path("runs"),
    tracking: TrackingOption = None,
) -> None:
    """Join a shared study as a worker, and train cells until all cells of the study are finished.

    Every machine needs access to the folder of runs and to the database in $HQLT_STORE. Workers can be started and
    stopped at any time; if a worker stops or crashes, the others continue its cells.
    """
    from hqlt_lab import api
    from hqlt_lab.cli.terminal.study_progress import StudyProgress

    file, overrides = api.find_study_file(study, runs), add_workers_override(overrides, workers)
    experiment = api.load_experiment(file, overrides)
    progress = StudyProgress(stderr_console, experiment.measure)
    try:
        result = api.join_study(experiment, only=only or (), runs=runs, tracking=tracking, callback=progress)
    except KeyboardInterrupt:  # before the first cell started
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        progress.close()
    if result.sync_warning:
        logger.warning(result.sync_warning)
    if not result.complete:
        logger.warning("Stopped. The cells of this worker are saved; other workers resume them.")
        raise typer.Exit(ExitCode.INTERRUPTED)


def print_next_commands(next_command: NextCommand, folder: Path, records: "Sequence[CellRecord]") -> None:
    """Print the commands and files with which to continue after a run."""
    console.print("\nNext:")
    if failed := [record.key for record in records if record.state == "failed"]:
        logs = next_command._replace(file=Path(failed[0]), overrides=[])
        console.print(f"    {logs.format_command('logs')}    # the traceback of the first failed cell", soft_wrap=True)
    retry_commands = next_command.retry_commands(records)
    for command in retry_commands[:MAX_RETRY_COMMANDS]:
        console.print(f"    {command}    # retry cells that failed or diverged", soft_wrap=True)
    if len(retry_commands) > MAX_RETRY_COMMANDS:
        status = next_command.format_command("status")
        console.print(f"    {status}    # all cells that failed or diverged", soft_wrap=True)
    console.print(f"    {next_command.format_command('ui')}    # every curve and run in the browser", soft_wrap=True)
    console.print(
        f"    {next_command.format_command('report')}    # show this table again; also --latex, --json, ...",
        soft_wrap=True,
    )
    console.print(f"    {escape(display_path(folder / 'report.html'))}    # a page with figures", soft_wrap=True)
    if retrain := next_command.retrain_command(records):
        console.print(f"    {retrain}    # retrain cells trained with older code", soft_wrap=True)


def display_path(path: Path) -> str:
    """Return the path relative to the working directory if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def exit_interrupted(next_command: NextCommand) -> NoReturn:
    """Print how to resume an interrupted run and exit with code 130."""
    command = remove_markup(next_command.format_command("run"))
    logger.warning(f"\nStopped. All progress is saved. Resume with\n    {command}")
    raise typer.Exit(ExitCode.INTERRUPTED)
