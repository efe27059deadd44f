"""The typer application: registers every command of `hqlt`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hqlt_lab
from hqlt_lab.cli.commands import (
    compare,
    components,
    data,
    doctor,
    evaluate,
    export,
    generate,
    lm_eval,
    plan,
    profile,
    report,
    run,
    schema,
    status,
    train,
    ui,
)
from hqlt_lab.cli.terminal.console import ColoredHandler, stderr_console
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.log_handler import log_to_stderr

logger = logging.getLogger(__name__)

app = typer.Typer(
    help="Ablations of hybrid quadratic-linear transformers: compose, check, train, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=(
        f"Exit codes: {', '.join(f'{code.value} {code.label}' for code in ExitCode)}. "
        "See docs/reference/command_line.md."
    ),
)
REGISTER_HINT = (
    'Decorate the component with @register("update_rule", "my_rule"); `hqlt new update_rule my_rule` writes an example.'
)
WITH_OPTION_NOTE = "Before or after the command. Repeatable."
LOG_OPTION_NOTE = "Before or after the command."


def print_version(requested: bool) -> None:
    """Print the version and exit; an eager typer callback, called before other options are parsed."""
    if requested:
        print(f"hqlt_lab {hqlt_lab.__version__}")
        raise typer.Exit


@app.callback()
def prepare_command(
    context: typer.Context,
    component_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", help=f"Register the components of a Python file, or load an lm-eval task file. {WITH_OPTION_NOTE}"
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help=f"Also show debug messages. {LOG_OPTION_NOTE}")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help=f"Show only results, warnings and errors, no progress. {LOG_OPTION_NOTE}"),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Ablations of hybrid quadratic-linear transformers: compose, check, train, compare."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    context.with_resource(log_to_stderr(level, ColoredHandler()))
    stderr_console.quiet = quiet
    load_own_components(component_files or [])


def load_own_components(files: Sequence[Path]) -> None:
    """Register the components of these files, here and in subprocesses; warn about a file without any."""
    from hqlt_lab.registry import export_to_subprocesses, find_external_components, list_loaded_files

    export_to_subprocesses([])  # clear the files of a command that ran earlier in this process
    for file in files:
        files_before, components_before = list_loaded_files(), find_external_components()
        export_to_subprocesses([file])
        is_newly_loaded = file.suffix == ".py" and list_loaded_files() != files_before
        if is_newly_loaded and find_external_components() == components_before:
            logger.warning(f"--with {file}: no component is registered in it. {REGISTER_HINT}")


app.command("list")(components.list_components)
app.command("show")(components.show_component)
app.command("new")(components.create_component)
app.command("check")(components.check_conformance)
app.command("plan")(plan.show_plan)
app.command("run")(run.run_study)
app.command("worker")(run.join_study)
app.command("status")(status.show_status)
app.command("logs")(status.show_logs)
app.command("report")(report.show_report)
app.command("evaluate")(evaluate.evaluate_models)
app.command("lm-eval")(lm_eval.evaluate_language_models)
app.command("generate")(generate.generate_text)
app.command("export")(export.export_model)
app.command("profile")(profile.profile_composition)
app.command("compare")(compare.show_comparison)
app.command("forget")(status.forget_cells)
app.command("ui")(ui.serve_ui)
app.command("train")(train.train_cell)
app.add_typer(data.app, name="data")
app.command("schema")(schema.write_schema)
app.command("doctor")(doctor.show_diagnosis)
