"""The committed reference pages are up to date and complete."""

import importlib
from pathlib import Path

import pytest
import typer

import hqlt_lab
from hqlt_lab.cli.app import app
from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.experiment.json_schema import build_json_schema
from hqlt_lab.experiment.load_experiment import SECTIONS
from hqlt_lab.reference_pages.command_line import walk_commands
from hqlt_lab.reference_pages.page_index import PAGES, write_pages
from hqlt_lab.registry import KINDS, available, options

FOLDER = Path(__file__).parents[2] / "docs/reference"


@pytest.mark.parametrize("name", PAGES)
def test_committed_page_is_up_to_date(name):
    assert (FOLDER / name).read_text() == PAGES[name](), "run `make reference` and commit what it writes"


def test_all_pages_are_written_to_the_given_folder(tmp_path):
    assert [file.name for file in write_pages(tmp_path / "new")] == list(PAGES)
    assert all((tmp_path / "new" / name).read_text().startswith("<!-- Written by") for name in PAGES)


def schema_keys(schema, path):
    """Yield every key of the schema, at any depth, with its own schema."""
    for name, key_schema in schema.get("properties", {}).items():
        yield f"{path}.{name}", key_schema
        yield from schema_keys(key_schema, f"{path}.{name}")
    for inner in (*schema.get("oneOf", ()), schema.get("additionalProperties"), schema.get("items")):
        if isinstance(inner, dict):
            yield from schema_keys(inner, path)


def test_every_key_of_an_experiment_file_has_a_description():
    keys = dict(schema_keys(build_json_schema(), ""))
    assert len(keys) > 100
    assert [path for path, schema in keys.items() if not schema.get("description", "").endswith((".", "?"))] == []


def test_every_option_of_every_component_has_a_description():
    undocumented = [
        f"{kind} {name} {option.name}"
        for kind in KINDS
        for name in available(kind)
        for option in options(kind, name).values()
        if not option.help.endswith(".")
    ]
    assert undocumented == []


def test_schema_has_all_sections_of_a_file():
    assert set(build_json_schema()["properties"]) == {*SECTIONS, "extends"}


def test_experiment_file_page_has_every_section_and_component():
    page = (FOLDER / "experiment_file.md").read_text()
    headings = {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}
    assert {*SECTIONS, *KINDS} <= headings
    assert {f"{kind} {name}" for kind in KINDS for name in available(kind)} <= headings


def test_every_command_argument_and_option_has_a_help_text():
    for name, command in walk_commands(typer.main.get_command(app), "hqlt"):
        assert command.help, name
        assert [parameter.name for parameter in command.params if not parameter.help] == [], name


def test_command_line_page_has_every_command_and_exit_code():
    page = (FOLDER / "command_line.md").read_text()
    names = [name for name, _ in walk_commands(typer.main.get_command(app), "hqlt")]
    assert len(names) > 15 and all(f"\n## {name}\n" in page for name in names)
    text = " ".join(page.split())  # long lines are wrapped
    assert all(f"- **{code.value}**, {code.label}: {code.meaning}" in text for code in ExitCode)
    assert max(len(line) for line in page.splitlines()) <= 120


def test_every_public_name_has_a_docstring_and_is_on_the_python_page():
    page = (FOLDER / "python.md").read_text()
    for name in hqlt_lab.__all__:
        obj = getattr(hqlt_lab, name)
        assert f"\n## lab.{name}\n" in page and f"lab.{name}(" in page
        assert obj.__doc__ or importlib.import_module(obj.__module__).__doc__
