"""All verbs of `hqlt`, each in the file of its topic."""

from pathlib import Path
from typing import Annotated

import typer

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
    studies,
)

app = typer.Typer(
    help="Ablations of hybrid quadratic-linear transformers: compose, check, train, compare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def before(
    outside: Annotated[
        list[Path] | None, typer.Option("--with", help="A Python file whose parts to register. Repeatable.")
    ] = None,
) -> None:
    """Ablations of hybrid quadratic-linear transformers: compose, check, train, compare."""
    from hqlt_lab.registry import hand_on

    hand_on(outside or [])


app.command("list")(components.list_parts)
app.command("show")(components.show)
app.command("new")(components.new)
app.command("check")(components.check)
app.command("plan")(experiments.plan)
app.command("run")(studies.run)
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
