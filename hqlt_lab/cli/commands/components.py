"""The commands about components: `hqlt list`, `hqlt show` and `hqlt new`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console
from hqlt_lab.cli.terminal.shared_options import KindArgument, json_option
from hqlt_lab.errors import (
    HqltError,
    RegistryError,
    did_you_mean,
    format_names,
    join_sentences,
)
from hqlt_lab.formatting import dump_json
from hqlt_lab.registry import (
    KINDS,
    build,
    find_factory,
    format_type,
    inspect_component,
    list_components_of_kind,
    list_names,
)

COMPONENT_KEYS = "kind, name, summary, file, line, options (each with its type, required, default, help)."


def list_components(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"{', '.join(KINDS)}. Default: all.", autocompletion=completion.complete_kinds),
    ] = None,
    pattern: Annotated[
        str,
        typer.Argument(
            help="Names to list; wildcards are allowed: '*delta*'.", autocompletion=completion.complete_components
        ),
    ] = "*",
    as_json: Annotated[bool, json_option(f"by kind, a list of components: {COMPONENT_KEYS}")] = False,
) -> None:
    """List the registered components."""
    names_by_kind = {
        listed_kind: list_components_of_kind(listed_kind, pattern) for listed_kind in ([kind] if kind else KINDS)
    }
    if as_json:
        entries = {
            listed_kind: [component_as_dict(listed_kind, name) for name in names]
            for listed_kind, names in names_by_kind.items()
        }
        print(dump_json(entries))
        return
    if not any(names_by_kind.values()):
        message = f"no component is called {pattern!r}."
        raise RegistryError.at("pattern", "no_component_matches", message, "`hqlt list` shows all of them.")
    table = Table("kind", "name", "summary", box=None, pad_edge=False)
    for listed_kind, names in names_by_kind.items():
        for number, name in enumerate(names):
            summary = inspect_component(listed_kind, name).summary.split(": ", 1)[-1]
            table.add_row("" if number else listed_kind, Text(name, style="bold"), Text(summary))
    console.print(table)


def show_component(
    kind: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(KINDS)}; or only the name of the component.", autocompletion=completion.complete_kinds
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="A registered name.", autocompletion=completion.complete_components)
    ] = None,
    as_json: Annotated[bool, json_option(COMPONENT_KEYS.replace("summary,", "summary, doc,"))] = False,
    into: Annotated[Path, typer.Option(help="Folder for the GIF of an environment.")] = Path("."),
) -> None:
    """Show a component's documentation, options and source file; for an environment, also write an episode as a GIF."""
    kind, name = (kind, name) if name else find_component(kind)
    if as_json:
        print(dump_json(component_as_dict(kind, name) | {"doc": inspect_component(kind, name).doc}))
        return
    entry = inspect_component(kind, name)
    console.print(f"[bold]{entry.kind} {entry.name}[/bold]   {entry.file}:{entry.line}\n", soft_wrap=True)
    console.print(entry.doc, markup=False, highlight=False, soft_wrap=True)
    console.print("\n[bold]options[/bold]")
    for option in entry.options.values():
        console.print(f"  {option}    {option.help}".rstrip(), markup=False, highlight=False, soft_wrap=True)
    if not entry.options:
        console.print("  none")
    if kind == "task":
        show_task(name, into)


def find_component(name: str) -> tuple[str, str]:
    """Return kind and name of the component with that name; raise RegistryError unless there is exactly one."""
    if name in KINDS:
        hint = f"Name one of: {format_names(list_names(name))}."
        raise RegistryError.at("name", "kind_without_name", f"{name!r} is a kind of components.", hint)
    matches = [(kind, name) for kind in KINDS if name.replace("-", "_") in list_names(kind)]
    if len(matches) != 1:
        all_names = [listed_name for kind in KINDS for listed_name in list_names(kind)]
        hint = join_sentences(did_you_mean(name, all_names), "`hqlt list` shows all of them.")
        raise RegistryError.at("name", "unknown_component", f"no component is called {name!r}.", hint)
    return matches[0]


def show_task(name: str, folder: Path) -> None:
    """Print the metrics of a task, and examples or an episode."""
    show_metrics(name)
    factory = find_factory("task", name)
    if getattr(factory, "is_environment", False):
        show_episode(name, folder)
    elif hasattr(factory, "chance_level"):  # not the language task, which needs prepared data
        show_examples(name)


def show_metrics(name: str) -> None:
    """Print the metrics of a task that an experiment file can select by and report."""
    from hqlt_lab.experiment.validate.metric_names import list_task_metrics

    with suppress(HqltError):  # a task with required options cannot be built from its name
        metrics = format_names(list_task_metrics(build("task", name)))
        console.print("\n[bold]metrics[/bold]")
        console.print(f"  {metrics}", markup=False, highlight=False, soft_wrap=True)


def show_examples(name: str) -> None:
    """Print a few short examples of a task with their labels in brackets, and the chance level."""
    task = build("task", name)
    # arrays instead of tensors, because importing torch takes seconds
    batch = (task.generate_arrays if hasattr(task, "generate_arrays") else task.get_examples)("short", 0, 0, 200)
    console.print(f"\n[bold]examples[/bold], labels in brackets; chance level {task.chance_level:.3g} %")
    for metric, scores in task.shortcut_scores.items():
        for shortcut, score in scores.items() if metric != "normalized_accuracy" else ():
            console.print(f"{metric} of a shortcut, {shortcut}: {score:.3g} %", markup=False, highlight=False)
    lengths = batch.lengths.tolist()
    rows_by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    for row in (rows_by_length[0], rows_by_length[20], rows_by_length[60]):
        console.print(f"  {task.format_example(batch, row)}", markup=False, highlight=False)


def show_episode(name: str, folder: Path) -> None:
    """Write an episode of the expert policy in an environment as a GIF, and print the chance level."""
    from hqlt_lab.agent.episode_gif import record_episode, write_gif

    environment = build("task", name)
    vector_env, file = environment.reset("valid", 0, 0, 1), folder / f"{name}.gif"
    folder.mkdir(parents=True, exist_ok=True)
    write_gif(file, record_episode(vector_env, lambda observation: vector_env.expert_action()))
    console.print(
        f"\n[bold]episode[/bold] of {vector_env.elapsed_steps} steps: {file}. It shows the expert policy; pale cells "
        f"are outside the agent's view. The best policy without memory succeeds in {environment.chance_level:.3g} % "
        "of the episodes.",
        soft_wrap=True,
    )


def create_component(
    kind: KindArgument,
    name: Annotated[str, typer.Argument(help="Name of the new component: lower_case letters, digits and underscores.")],
    form: Annotated[
        str | None,
        typer.Option(
            help="Template of an update_rule: scalar (one gate per head, the default), channel (gates per channel), "
            "lookup (a lookup key of its own), step (not linear in its state)."
        ),
    ] = None,
    into: Annotated[Path, typer.Option(help="Folder of the new file.")] = Path("."),
) -> None:
    """Create a file with a new component, a template that passes all checks."""
    from hqlt_lab.cli.templates import write_component

    file = write_component(kind, name, into, form)
    console.print(f"{escape(str(file))} was written. Edit it, and check it with", soft_wrap=True)
    console.print(f"    hqlt --with {escape(str(file))} check {kind} {name}", soft_wrap=True)


def component_as_dict(kind: str, name: str) -> dict[str, Any]:
    """Return the description of a component for --json."""
    entry = inspect_component(kind, name)
    option_entries = {
        option.name: {"type": format_type(option.type), "required": option.is_required, "help": option.help}
        | ({} if option.is_required else {"default": option.default})
        for option in entry.options.values()
    }
    return {
        "kind": entry.kind,
        "name": entry.name,
        "summary": entry.summary,
        "file": entry.file,
        "line": entry.line,
        "options": option_entries,
    }
