"""The page of the command line: from the app that parses it."""

import inspect
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_type_hints

import typer

from hqlt_lab.cli.app import app
from hqlt_lab.cli.exits import Exit
from hqlt_lab.reference.markdown import code, heading, item, page
from hqlt_lab.registry import spelled

INTRODUCTION = "`hqlt VERB --help` tells the same in the terminal. Options stand before or behind arguments."
SCREEN = """\
What was asked for goes to standard output; progress and remarks go to standard error. In a pipe or a file there are no
colours, no moving bars, and no line is broken or cut. `NO_COLOR=1` takes the colours off a terminal, `FORCE_COLOR=1`
puts them into a pipe, `TERM=dumb` stops whatever moves, `COLUMNS=100` sets the width.

With `--json` standard output is one JSON document and nothing else. The keys that stand with the option are always
there; a number that is none (nan, infinity) is `null`.
"""
COMPLETION = """\
    hqlt --install-completion        # bash, zsh, fish, PowerShell: the one that it is typed in
    hqlt --show-completion           # the lines that this adds, to put them elsewhere

After opening a new shell, Tab completes verbs and options, experiment files, kinds and parts (those of `--with` and of
`pyproject.toml` too), keys of cells and names of studies below `--runs`, `--only arm=...,seed=...` from the file that
was typed, and `--set` with every setting and its default.
"""


def command_line() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    lines = [INTRODUCTION, *heading(2, "hqlt"), root.help, *parameters(root)]
    for words, verb in verbs(root, "hqlt"):
        lines += [*heading(2, words), *usage(words, verb), "", verb.help, *parameters(verb)]
    lines += [*heading(2, "Exit codes"), *(f"- **{end.value}**: {end.meaning}" for end in Exit)]
    lines += [
        "",
        "After 1 and 2 nothing was printed to standard output, but for the help that `hqlt` alone shows; after 3 it is "
        "whole.",
    ]
    lines += [*heading(2, "Output"), SCREEN.strip(), *heading(2, "Completion"), COMPLETION.rstrip()]
    return page("The command line, verb by verb", *lines)


def verbs(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Every verb with all its words, those of groups too."""
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from verbs(verb, f"{before} {name}")
        else:
            yield f"{before} {name}", verb


def usage(words: str, verb: Any) -> list[str]:
    """How it is typed: hqlt show KIND NAME [OPTIONS]."""
    given = [one for one in verb.params if one.param_type_name == "argument"]
    names = [f"{one.name.upper()}{'...' if one.nargs == -1 else ''}" for one in given]
    typed = [name if one.required else f"[{name}]" for name, one in zip(names, given, strict=True)]
    return [f"    {' '.join([words, *typed, '[OPTIONS]'])}"]


def parameters(verb: Any) -> list[str]:
    """Arguments, then options, each with its type, default and sentence."""
    hints = get_type_hints(verb.callback)
    made = inspect.signature(verb.callback).parameters
    lines = [""]
    for one in sorted(verb.params, key=lambda one: one.param_type_name != "argument"):
        name = one.name.upper() if one.param_type_name == "argument" else one.opts[0]
        is_flag = hints.get(one.name, bool) is bool
        default = made[one.name].default if one.name in made else None
        told = [
            "" if is_flag else type_of(hints[one.name]),
            "required" if one.required else "",
            f"default {code(str(default))}" if not is_flag and default not in (None, made[one.name].empty) else "",
        ]
        lines += item(name, told, one.help)
    return lines


def type_of(hint: Any) -> str:
    """In words; what may be left out says so by not being required."""
    several = [one for one in get_args(hint) if one is not NoneType] if NoneType in get_args(hint) else [hint]
    return " | ".join(spelled(one) for one in several).replace("Path", "path")
