"""The verbs about parts: list, show, new, check."""

import json
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.backends import check_backends
from hqlt_lab.cli.settings import chosen_options
from hqlt_lab.errors import RegistryError
from hqlt_lab.registry import KINDS, available, build, describe, options, sentences, spelled

KindArgument = Annotated[str | None, typer.Argument(help=f"{', '.join(KINDS)}. Without it: all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]
console = Console()


def list_parts(
    kind: KindArgument = None,
    pattern: Annotated[str, typer.Argument(help="Names to list, with wildcards: '*delta*'.")] = "*",
    as_json: JsonOption = False,
) -> None:
    """What there is to compose a model from."""
    found = {one: available(one, pattern) for one in ([kind] if kind else KINDS)}
    if as_json:
        print(json.dumps({one: [as_dict(one, name) for name in names] for one, names in found.items()}, indent=2))
        return
    table = Table("kind", "name", "idea", box=None, pad_edge=False)
    for one, names in found.items():
        for number, name in enumerate(names):
            idea = describe(one, name).idea.split(": ", 1)[-1]
            table.add_row("" if number else one, Text(name, style="bold"), Text(idea))
    console.print(table)


def show(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str, typer.Argument(help="A registered name.")],
    as_json: JsonOption = False,
    into: Annotated[Path, typer.Option(help="The folder for the film of a world.")] = Path("."),
) -> None:
    """A part's words, its options and where it is defined; of a world also an episode, as a GIF."""
    if as_json:
        print(json.dumps(as_dict(kind, name), indent=2))
        return
    entry = describe(kind, name)
    console.print(f"[bold]{entry.kind} {entry.name}[/bold]   {entry.file}:{entry.line}\n", soft_wrap=True)
    console.print(entry.doc, markup=False, highlight=False, soft_wrap=True)
    console.print("\n[bold]options[/bold]")
    words = sentences(entry.maker) if is_dataclass(entry.maker) else {}
    for option in options(kind, name).values():
        told = f"  {option}    {words.get(option.name, '')}".rstrip()
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if not options(kind, name):
        console.print("  none")
    if kind == "task" and getattr(entry.maker, "is_world", False):
        show_world(name, into)
    elif kind == "task" and hasattr(entry.maker, "chance"):  # a text has to be prepared first
        show_examples(name)


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
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS))],
    name: Annotated[str, typer.Argument(help="Its name: lower_case letters, digits and underscores.")],
    into: Annotated[Path, typer.Option(help="The folder to write the file in.")] = Path("."),
) -> None:
    """A file with a new part, ready to fill: it conforms as it is."""
    from hqlt_lab.cli.templates import write

    file = write(kind, name, into)
    console.print(f"{file} is there. See that it conforms, then make it yours:", soft_wrap=True)
    console.print(f"    hqlt --with {file} check {kind} {name}", soft_wrap=True)


def check(
    kind: Annotated[str | None, typer.Argument(help=f"{', '.join(KINDS)}; or backends. Without it: all kinds.")] = None,
    name: Annotated[str | None, typer.Argument(help="A registered name. Without it: all of the kind.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the part: max_beta=2. Repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without crossing and compiling.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put parts through the conformance kit; or, `check backends`, what computes them beside the truth."""
    if kind == "backends":
        return check_backends(name, as_json)
    from hqlt_lab.check.kit import OF_ITS_KIND, check_part, checks

    kinds = [kind] if kind else list(OF_ITS_KIND)
    checks(kinds[0])
    reports = []
    for one in kinds:
        for part in [name] if name else available(one):
            with Console(stderr=True).status(f"checking {one} {part} ..."):
                reports.append(check_part(one, {"name": part, **chosen_options(option or [])}, quick))
            if not as_json:
                console.print(reports[-1].table(), "")
    if as_json:
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    if failed := [f"{report.kind} {report.name}" for report in reports if not report.passed]:
        raise RegistryError(f"These do not conform: {', '.join(failed)}.")


def as_dict(kind: str, name: str) -> dict[str, Any]:
    """A part for programs."""
    entry = describe(kind, name)
    described = {
        option.name: {"type": spelled(option.type), "required": option.required}
        | ({} if option.required else {"default": option.default})
        for option in options(kind, name).values()
    }
    return {"name": entry.name, "idea": entry.idea, "file": entry.file, "line": entry.line, "options": described}
