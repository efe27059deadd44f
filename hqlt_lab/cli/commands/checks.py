"""The command `hqlt check`: conformance checks of components and other modules, and the comparison of backends."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.terminal import completion
from hqlt_lab.cli.terminal.console import console, stderr_console
from hqlt_lab.cli.terminal.exit_codes import PartialFailure
from hqlt_lab.cli.terminal.shared_options import CHECKED_KINDS_HELP, json_option
from hqlt_lab.errors import ConfigError, issues_under
from hqlt_lab.formatting import dump_json
from hqlt_lab.registry import available

if TYPE_CHECKING:
    from hqlt_lab.check.backend_comparison import BackendComparison


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
