"""Reference page of the command line, generated from the typer app."""

import inspect
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import typer

from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.reference_pages.markdown import heading_lines, inline_code, list_item, render_page
from hqlt_lab.registry import format_type

COMMAND_LINE_INTRODUCTION = (
    "`hqlt COMMAND --help` prints the same text in the terminal. Options can be written before or after arguments."
)
OUTPUT_NOTE = """\
The requested result goes to standard output; progress, remarks, warnings and errors go to standard error. In a pipe or
a file there are no colors and no progress bars, and lines are not wrapped. `NO_COLOR=1` disables colors,
`FORCE_COLOR=1` enables them in a pipe, `TERM=dumb` disables progress bars, and `COLUMNS=100` sets the width.

`-q` hides progress and remarks, but never the result, a warning or an error; `-v` adds debug messages. In Python, log
messages are records of the logger `hqlt_lab`: `logging.basicConfig(level=logging.INFO)` shows them. A worker logs to
`log.txt` in the folder of its cell; `hqlt logs KEY` prints it.

With `--json` standard output is one JSON document and nothing else. The keys listed with the option are always present;
nan and infinity are `null`.
"""
COMPLETION_NOTE = """\
    hqlt --install-completion        # for the current shell: bash, zsh, fish or PowerShell
    hqlt --show-completion           # print the completion script instead

After opening a new shell, Tab completes commands and options, experiment files, kinds and components (also those of
`--with` and of `pyproject.toml`), keys of cells and names of studies in `--runs`, `--only arm=...,seed=...` from the
given file, and `--set` with every setting and its default.
"""


def command_line_page() -> str:
    root: Any = typer.main.get_command(app)
    lines = [COMMAND_LINE_INTRODUCTION, *heading_lines(2, "hqlt"), root.help, *parameter_lines(root)]
    for name, command in walk_commands(root, "hqlt"):
        lines += [*heading_lines(2, name), *usage_lines(name, command), "", command.help, *parameter_lines(command)]
    lines += [
        *heading_lines(2, "Exit codes"),
        *(f"- **{code.value}**, {code.label}: {code.meaning}" for code in ExitCode),
    ]
    lines += [
        "",
        "With exit codes 1 and 2 standard output is empty (except the help text of `hqlt` without a command). With 3 "
        "it is complete.",
    ]
    lines += [
        *heading_lines(2, "Output"),
        OUTPUT_NOTE.strip(),
        *heading_lines(2, "Completion"),
        COMPLETION_NOTE.rstrip(),
    ]
    return render_page("The command line, command by command", *lines)


def walk_commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name ("hqlt data show"), including those of subgroups."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from walk_commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def usage_lines(command_name: str, command: Any) -> list[str]:
    """Return the usage as a code block: hqlt show KIND [NAME] [OPTIONS]."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    names = [f"{argument.name.upper()}{'...' if argument.nargs == -1 else ''}" for argument in arguments]
    usage = [name if argument.required else f"[{name}]" for name, argument in zip(names, arguments, strict=True)]
    return [f"    {' '.join([command_name, *usage, '[OPTIONS]'])}"]


def parameter_lines(command: Any) -> list[str]:
    """Return the arguments, then the options, each with type, default and help text."""
    hints = get_type_hints(command.callback)
    signature = inspect.signature(command.callback).parameters
    lines = [""]
    for parameter in sorted(command.params, key=lambda parameter: parameter.param_type_name != "argument"):
        name = parameter.name.upper() if parameter.param_type_name == "argument" else parameter.opts[0]
        is_flag = hints.get(parameter.name, bool) is bool
        default = signature[parameter.name].default if parameter.name in signature else None
        has_default = not is_flag and default not in (None, inspect.Parameter.empty)
        facts = [
            "" if is_flag else format_parameter_type(hints[parameter.name]),
            "required" if parameter.required else "",
            f"default {inline_code(str(default))}" if has_default else "",
        ]
        lines += list_item(name, facts, parameter.help)
    return lines


def format_parameter_type(hint: Any) -> str:
    """Return the name of a type; None is left out, because an optional parameter is not marked as required."""
    types = [option for option in get_args(hint) if option is not NoneType] if NoneType in get_args(hint) else [hint]
    return " | ".join(format_type(option) for option in types).replace("Path", "path")
