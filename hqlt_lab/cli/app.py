"""All verbs of `hqlt`, each in the file of its topic."""

from pathlib import Path
from typing import Annotated

import typer

import hqlt_lab
from hqlt_lab.cli import (
    compare,
    components,
    data,
    evaluate,
    experiments,
    export,
    generate,
    machine,
    reports,
    running,
    studies,
)
from hqlt_lab.cli.exits import Exit
from hqlt_lab.cli.screen import aside, warn

app = typer.Typer(
    help="Ablations of hybrid quadratic-linear transformers: compose, check, train, compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=f"Ends with {', '.join(f'{code.value} {code.word}' for code in Exit)}: docs/reference/command_line.md.",
)
PART = 'A part stands below @register("update_rule", "my_rule"); `hqlt new update_rule my_rule` writes one.'
ANYWHERE = "Before the verb or behind it. Repeatable."


def tell_version(wanted: bool) -> None:
    """--version, before anything else is looked at."""
    if wanted:
        print(f"hqlt_lab {hqlt_lab.__version__}")
        raise typer.Exit


@app.callback()
def before(
    outside: Annotated[
        list[Path] | None,
        typer.Option("--with", help=f"A Python file whose parts to register, or a task file of lm-eval. {ANYWHERE}"),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Which version this is.", is_eager=True, callback=tell_version)
    ] = False,
) -> None:
    """Ablations of hybrid quadratic-linear transformers: compose, check, train, compare."""
    from hqlt_lab.registry import hand_on, included, outside_parts

    hand_on([])  # what another command left is not ours
    for file in outside or []:
        files, parts = included(), outside_parts()
        hand_on([file])
        if file.suffix == ".py" and included() != files and outside_parts() == parts:
            warn(f"--with {file}: no part is registered in it. {PART}", aside)


app.command("list")(components.list_parts)
app.command("show")(components.show)
app.command("new")(components.new)
app.command("check")(components.check)
app.command("plan")(experiments.plan)
app.command("run")(running.run)
app.command("worker")(running.worker)
app.command("status")(studies.status)
app.command("logs")(studies.logs)
app.command("report")(reports.report)
app.command("evaluate")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.command("export")(export.export)
app.command("compare")(compare.compare)
app.command("forget")(studies.forget)
app.command("ui")(studies.ui)
app.command("train")(experiments.train)
app.add_typer(data.app, name="data")
app.command("schema")(experiments.schema)
app.command("doctor")(machine.doctor)
