"""Built-in components read from their source: equal to what the import gives, and torch is not imported."""

import subprocess
import sys

import pytest

from hqlt_lab.registry import KINDS, available, describe, inspect_component, options, register, temporary_components
from hqlt_lab.registry.source_reader import list_components_of_kind, read_component_source

COMPONENTS = [(kind, name) for kind in KINDS for name in available(kind)]


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_source_gives_what_the_import_gives(kind, name):
    source, entry = read_component_source(kind, name), describe(kind, name)
    assert (source.doc, source.file, source.line) == (entry.doc, entry.file, entry.line)
    assert list(source.options.values()) == list(options(kind, name).values())


def test_external_component_is_listed_and_inspected():
    with temporary_components():

        @register("mixer", "for_the_reader")
        def for_the_reader(strength: float = 2.0) -> None:
            """Reader: no use."""

        assert "for_the_reader" in list_components_of_kind("mixer")
        assert inspect_component("mixer", "for_the_reader").options["strength"].default == 2.0


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "list mixer --json",
        "show update_rule delta",
        "new mixer mine",
        "show task parity",
        "show parity",
        "show task t_maze",
        "show language",
    ],
)
def test_command_does_not_import_torch(command, tmp_path):
    script = "import sys; from hqlt_lab.cli.app import app; app(standalone_mode=False); print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", script, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "typer" in process.stdout.split() and "torch" not in process.stdout.split()
