"""The verbs about parts: list, show, new, check."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hqlt_lab.cli import completion
from hqlt_lab.cli.backends import check_backends
from hqlt_lab.cli.exits import NotAllWell
from hqlt_lab.cli.options import WITH_PROMISES, KindArgument, for_programs
from hqlt_lab.cli.screen import aside, console
from hqlt_lab.cli.settings import chosen_options
from hqlt_lab.errors import HqltError, RegistryError, did_you_mean, listed
from hqlt_lab.registry import KINDS, available, build, describe, options, spelled, titles
from hqlt_lab.words import in_json

PART = "kind, name, idea, file, line, options (each with its type, required, default, says)."


def list_parts(
    kind: Annotated[
        str | None, typer.Argument(help=f"{', '.join(KINDS)}. Without it: all.", autocompletion=completion.kinds)
    ] = None,
    pattern: Annotated[
        str, typer.Argument(help="Names to list, with wildcards: '*delta*'.", autocompletion=completion.parts)
    ] = "*",
    as_json: Annotated[bool, for_programs(f"by kind, a list of parts: {PART}")] = False,
) -> None:
    """What there is to compose a model from."""
    found = {one: available(one, pattern) for one in ([kind] if kind else KINDS)}
    if as_json:
        print(in_json({one: [as_dict(one, name) for name in names] for one, names in found.items()}))
        return
    if not any(found.values()):
        raise RegistryError(f"Nothing is called {pattern!r}. `hqlt list` shows everything.")
    table = Table("kind", "name", "idea", box=None, pad_edge=False)
    for one, names in found.items():
        for number, name in enumerate(names):
            idea = describe(one, name).idea.split(": ", 1)[-1]
            table.add_row("" if number else one, Text(name, style="bold"), Text(idea))
    console.print(table)


def show(
    kind: Annotated[
        str, typer.Argument(help=f"{', '.join(KINDS)}; or the name alone.", autocompletion=completion.kinds)
    ],
    name: Annotated[str | None, typer.Argument(help="A registered name.", autocompletion=completion.parts)] = None,
    as_json: Annotated[bool, for_programs(PART.replace("idea,", "idea, words,"))] = False,
    into: Annotated[Path, typer.Option(help="The folder for the film of a world.")] = Path("."),
) -> None:
    """A part's words, its options and where it is defined; of a world also an episode, as a GIF."""
    kind, name = (kind, name) if name else part_called(kind)
    if as_json:
        print(in_json(as_dict(kind, name) | {"words": describe(kind, name).doc}))
        return
    entry = describe(kind, name)
    console.print(f"[bold]{entry.kind} {entry.name}[/bold]   {entry.file}:{entry.line}\n", soft_wrap=True)
    console.print(entry.doc, markup=False, highlight=False, soft_wrap=True)
    console.print("\n[bold]options[/bold]")
    for option in options(kind, name).values():
        told = f"  {option}    {option.says}".rstrip()
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if not options(kind, name):
        console.print("  none")
    if kind == "task":
        show_metrics(name)
    if kind == "task" and getattr(entry.maker, "is_world", False):
        show_world(name, into)
    elif kind == "task" and hasattr(entry.maker, "chance"):  # a text has to be prepared first
        show_examples(name)


def part_called(name: str) -> tuple[str, str]:
    """The one part of that name, whatever its kind; of a kind, which there are."""
    if name in KINDS:
        raise RegistryError(f"{name}: which one? There is: {listed(titles(name))}.")
    found = [(kind, name) for kind in KINDS if name.replace("-", "_") in titles(kind)]
    if len(found) != 1:
        known = [title for kind in KINDS for title in titles(kind)]
        raise RegistryError(f"{name}: no part is called so.{did_you_mean(name, known)} `hqlt list` has all of them.")
    return found[0]


def show_metrics(name: str) -> None:
    """What a file can select by and report."""
    from hqlt_lab.experiment.metrics import metrics_in

    with suppress(HqltError):  # a task that needs to be told more
        told = listed(metrics_in(build("task", name)))
        console.print("\n[bold]metrics[/bold]")
        console.print(f"  {told}", markup=False, highlight=False, soft_wrap=True)


def show_examples(name: str) -> None:
    """What a task looks like: a few short examples, the answers in brackets, and what guessing achieves."""
    task = build("task", name)
    batch = task.examples("short", 0, 0, 200)
    console.print(f"\n[bold]examples[/bold], answers in brackets; chance is {task.chance:.3g} %")
    for row in batch.lengths.argsort(stable=True)[[0, 20, 60]].tolist():
        console.print(f"  {task.decode(batch, row)}", markup=False, highlight=False)


def show_world(name: str, into: Path) -> None:
    """What a world looks like: an episode of somebody who knows where to go, and what guessing achieves."""
    from hqlt_lab.agent.film import film, write_film

    world = build("task", name)
    scene, file = world.begin("valid", 0, 0, 1), into / f"{name}.gif"
    into.mkdir(parents=True, exist_ok=True)
    write_film(file, film(scene, lambda seen: scene.guide()))
    console.print(
        f"\n[bold]episode[/bold] of {scene.time} steps: {file}, of somebody who knows where to go; what is not seen "
        f"is pale. Without a memory {world.chance:.3g} % succeed at best.",
        soft_wrap=True,
    )


def new(
    kind: KindArgument,
    name: Annotated[str, typer.Argument(help="Its name: lower_case letters, digits and underscores.")],
    form: Annotated[
        str | None,
        typer.Option(help="Another way to write it: step, for an update_rule that is not linear in its memory."),
    ] = None,
    into: Annotated[Path, typer.Option(help="The folder to write the file in.")] = Path("."),
) -> None:
    """A file with a new part, ready to fill: it conforms as it is."""
    from hqlt_lab.cli.templates import write

    file = write(kind, name, into, form)
    console.print(f"{escape(str(file))} is there. See that it conforms, then make it yours:", soft_wrap=True)
    console.print(f"    hqlt --with {escape(str(file))} check {kind} {name}", soft_wrap=True)


def check(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"{WITH_PROMISES}; or backends. Without it: all kinds.", autocompletion=completion.kinds),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="A registered name. Without it: all of the kind.", autocompletion=completion.parts),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the part: max_beta=2. Repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without crossing and compiling.")] = False,
    as_json: Annotated[
        bool,
        for_programs(
            "a list of parts: kind, name, passed, lines (each with its promise, outcome, detail); of backends: "
            "backend, precision, rule, timing, outcome, error, detail."
        ),
    ] = False,
) -> None:
    """Put parts through the conformance kit; or, `check backends`, what computes them beside the truth."""
    if kind == "backends":
        return check_backends(name, as_json)
    from hqlt_lab.check.kit import CHECKED, check_part, checks, is_checked

    kinds = [kind] if kind else list(CHECKED)
    checks(kinds[0])
    reports = []
    for one in kinds:
        for part in [name] if name else [part for part in available(one) if is_checked(one, part)]:
            with aside.status(f"checking {one} {part} ..."):
                reports.append(check_part(one, {"name": part, **chosen_options(option or [])}, quick))
            if not as_json:
                console.print(reports[-1].table(), "")
    if as_json:
        print(in_json([report.as_dict() for report in reports]))
    if failed := [f"{report.kind} {report.name}" for report in reports if not report.passed]:
        raise NotAllWell(f"These do not conform: {', '.join(failed)}.")


def as_dict(kind: str, name: str) -> dict[str, Any]:
    """A part for programs."""
    entry = describe(kind, name)
    described = {
        option.name: {"type": spelled(option.type), "required": option.required, "says": option.says}
        | ({} if option.required else {"default": option.default})
        for option in options(kind, name).values()
    }
    names = ("kind", "name", "idea", "file", "line")
    return {name: getattr(entry, name) for name in names} | {"options": described}
