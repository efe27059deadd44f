"""The commands about components: `hqlt list`, `hqlt show`, `hqlt new` and `hqlt check`."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, stderr_console
from hqlt_lab.cli.terminal.exit_codes import PartialFailure
from hqlt_lab.cli.terminal.shared_options import CHECKED_KINDS_HELP, KindArgument, json_option
from hqlt_lab.errors import (
    ConfigError,
    HqltError,
    RegistryError,
    did_you_mean,
    format_names,
    issues_under,
    join_sentences,
)
from hqlt_lab.formatting import dump_json
from hqlt_lab.registry import (
    KINDS,
    available,
    build,
    find_factory,
    format_type,
    inspect_component,
    list_components_of_kind,
    list_names,
)

if TYPE_CHECKING:
    from hqlt_lab.check.backend_comparison import BackendComparison

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


def check_conformance(
    kind: Annotated[
        str | None,
        typer.Argument(
            help=f"{CHECKED_KINDS_HELP}; or backends, or module. Default: all kinds.",
            autocompletion=completion.complete_kinds,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A registered name. Default: all of the kind. For a module: package.module:Name.",
            autocompletion=completion.complete_components,
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the component, such as max_beta=2. Repeatable.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Skip the slow checks: combinations with all other components, and torch.compile."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An argument of a module's class, a setting of a configuration of transformers, or an argument of a "
            "function, such as hidden_size=32. Repeatable.",
        ),
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(
            help="How a module is called, such as mask=padding, chunk=16 or tensor.g=BTHK:log_decay. Repeatable."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="A second implementation of a module or a function, package.module:Name, to compare with."),
    ] = None,
    as_json: Annotated[
        bool,
        json_option(
            "a list of components or modules: kind, name, passed, results (each with its check, outcome, detail); for "
            "backends: backend, precision, component, timing, outcome, error, detail."
        ),
    ] = False,
) -> None:
    """Run the conformance checks on components.

    `check backends` compares backends with the reference; `check module` checks a layer that is not a component.
    """
    if kind == "module":
        return check_other_module(name, settings or [], call or [], against, as_json)
    for flag, value in (("--set", settings), ("--call", call), ("--against", against)):
        if value:
            message = f"{flag} belongs to `hqlt check module`."
            raise ConfigError.at(flag, "option_of_check_module", message, "Options of a component: --option.")
    if kind == "backends":
        return check_backends(name, as_json)
    from hqlt_lab.check.conformance import CHECKED_KINDS, check_component, is_checkable, select_checks

    kinds = [kind] if kind else list(CHECKED_KINDS)
    select_checks(kinds[0])  # raises an error for an unknown kind
    reports = []
    for checked_kind in kinds:
        checkable = [component for component in available(checked_kind) if is_checkable(checked_kind, component)]
        for component in [name] if name else checkable:
            with stderr_console.status(f"checking {checked_kind} {component} ..."):
                spec = {"name": component, **parse_options(option or [])}
                reports.append(check_component(checked_kind, spec, quick))
            if not as_json:
                console.print(reports[-1].to_table(), "")
    if as_json:
        print(dump_json([report.as_dict() for report in reports]))
    if failed := [f"{report.kind} {report.name}" for report in reports if not report.passed]:
        raise PartialFailure(f"These components fail their checks: {', '.join(failed)}.")


def check_other_module(
    target: str | None, settings: list[str], call: list[str], against: str | None, as_json: bool
) -> None:
    """Check a layer, a language model of transformers or a function, and print the report."""
    from hqlt_lab.check.modules.check_module import check_module

    if target is None:
        hint = "Example: hqlt check module transformers:BambaForCausalLM."
        raise ConfigError.at("name", "module_without_name", "a module is named as package.module:Name.", hint)
    with stderr_console.status(f"checking {escape(target)} ..."):
        report = check_module(
            target, parse_options(settings, "--set"), call=parse_options(call, "--call"), against=against
        )
    print(dump_json([report.as_dict()])) if as_json else console.print(report.to_table())
    if not report.passed:
        raise PartialFailure(f"{target} fails its checks.")


def parse_options(pairs: list[str], flag: str = "--option") -> dict[str, Any]:
    """Parse the values of an option, each as YAML: ['max_beta=2'] -> {'max_beta': 2}."""
    from hqlt_lab.experiment.yaml.read_experiment_files import parse_value

    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError.at(flag, "not_name_and_value", f"{pair!r} is not name=value.")
        with issues_under(flag):
            parsed[key] = parse_value(value)
    return parsed


def check_backends(backend: str | None, as_json: bool) -> None:
    """Compare one backend, or all, with the reference implementation and print the deviations."""
    from hqlt_lab.check.backend_comparison import compare_backends

    comparisons: list[BackendComparison] = []
    with stderr_console.status("comparing backends ...") as status:
        for cell in compare_backends(backend):
            comparisons.append(cell)
            status.update(f"{cell.backend} {cell.precision} {cell.component} {cell.timing}: {format_deviation(cell)}")
    print(dump_json(comparisons)) if as_json else console.print(backend_table(comparisons))
    if failed := [cell for cell in comparisons if cell.outcome == "failed"]:
        names = "; ".join(
            f"{cell.backend} {cell.precision} {cell.component} {cell.timing}, {cell.detail}" for cell in failed
        )
        raise PartialFailure(f"These differ from the reference by more than the tolerance: {names}.")


def backend_table(cells: Iterable["BackendComparison"]) -> Table:
    """Return a table with a row per backend, precision and component, and a column per timing."""
    timings = available("timing")
    table = Table("backend", "precision", "component", *timings, box=None, pad_edge=False, title_justify="left")
    table.caption = (
        "Largest deviation from the reference among outputs, states and gradients, relative to the largest value."
    )
    rows: dict[tuple[str, str, str], dict[str, Text]] = {}
    for cell in cells:
        style = {"passed": "green", "failed": "bold red", "unavailable": "dim", "reported": "yellow"}[cell.outcome]
        row = rows.setdefault((cell.backend, cell.precision, cell.component), {})
        row[cell.timing] = Text(format_deviation(cell), style=style)
    for names, row in rows.items():
        table.add_row(*names, *(row.get(timing, "") for timing in timings))
    return table


def format_deviation(cell: "BackendComparison") -> str:
    if cell.error is None:
        return cell.detail
    note = f", {cell.detail}" if cell.outcome == "failed" or cell.detail == "without gradients" else ""
    return f"{cell.error:.0e}{note}"


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
