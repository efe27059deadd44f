"""Options of the commands: each command has the options that it reads, and no others."""

import ast
import inspect

import pytest
from typer.main import get_command

from hqlt_lab.cli.app import app


def list_commands():
    """Return every command of `hqlt` by its name, those of a group as "data prepare"."""
    commands = {}
    for name, command in get_command(app).commands.items():
        group = getattr(command, "commands", {})
        commands |= {f"{name} {inner_name}": inner for inner_name, inner in group.items()} or {name: command}
    return commands


SHARED_EVALUATION_OPTIONS = {"--lesion", "--again", "--only", "--set", "--runs", "--tracking", "--json"}


@pytest.mark.parametrize(
    ("command", "own_options"),
    [
        ("evaluate", {"--split", "--probe", "--long", "--ruler"}),
        ("lm-eval", {"--tasks", "--length", "--batch-size", "--limit", "--local", "--into"}),
    ],
)
def test_evaluation_commands_have_these_options_only(command, own_options):
    names = {name for parameter in list_commands()[command].params for name in parameter.opts if name.startswith("-")}
    assert names == SHARED_EVALUATION_OPTIONS | own_options


@pytest.mark.parametrize("name", list_commands())
def test_command_reads_every_option_that_it_has(name):
    function = inspect.unwrap(list_commands()[name].callback)
    (definition,) = ast.parse(inspect.getsource(function)).body
    read_names = {
        node.id for statement in definition.body for node in ast.walk(statement) if isinstance(node, ast.Name)
    }
    assert set(inspect.signature(function).parameters) <= read_names
