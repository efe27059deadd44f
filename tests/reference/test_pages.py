"""The committed reference is what the code says today, and leaves nothing out."""

import importlib
from pathlib import Path

import pytest
import typer

import hqlt_lab
from hqlt_lab.cli.app import app
from hqlt_lab.cli.exits import Exit
from hqlt_lab.experiment.experiment import SECTIONS
from hqlt_lab.experiment.json_schema import json_schema
from hqlt_lab.reference.command_line import verbs
from hqlt_lab.reference.pages import PAGES, write
from hqlt_lab.registry import KINDS, available, options

FOLDER = Path(__file__).parents[2] / "docs/reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_what_the_generator_writes(name):
    assert (FOLDER / name).read_text() == PAGES[name](), "run `make reference` and commit what it writes"


def test_all_pages_are_written_where_they_are_asked_for(tmp_path):
    assert [file.name for file in write(tmp_path / "new")] == list(PAGES)
    assert all((tmp_path / "new" / name).read_text().startswith("<!-- Written by") for name in PAGES)


def keys(schema, path):
    """Every key of the schema, at any depth, with what is told of it."""
    for name, told in schema.get("properties", {}).items():
        yield f"{path}.{name}", told
        yield from keys(told, f"{path}.{name}")
    for inner in (*schema.get("oneOf", ()), schema.get("additionalProperties"), schema.get("items")):
        if isinstance(inner, dict):
            yield from keys(inner, path)


def test_every_key_of_an_experiment_file_says_what_it_is():
    found = dict(keys(json_schema(), ""))
    assert len(found) > 100
    assert [path for path, told in found.items() if not told.get("description", "").endswith((".", "?"))] == []


def test_every_option_of_every_part_says_what_it_is():
    silent = [
        f"{kind} {name} {option.name}"
        for kind in KINDS
        for name in available(kind)
        for option in options(kind, name).values()
        if not option.says.endswith(".")
    ]
    assert silent == []


def test_the_schema_has_the_sections_that_a_file_may_have():
    assert set(json_schema()["properties"]) == {*SECTIONS, "extends"}


def test_the_page_of_files_has_every_section_and_part():
    page = (FOLDER / "experiment_file.md").read_text()
    headings = {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}
    assert {*SECTIONS, *KINDS} <= headings
    assert {f"{kind} {name}" for kind in KINDS for name in available(kind)} <= headings


def test_every_verb_argument_and_option_has_words():
    for words, verb in verbs(typer.main.get_command(app), "hqlt"):
        assert verb.help, words
        assert [one.name for one in verb.params if not one.help] == [], words


def test_the_page_of_the_command_line_has_every_verb_and_exit_code():
    page = (FOLDER / "command_line.md").read_text()
    names = [words for words, _ in verbs(typer.main.get_command(app), "hqlt")]
    assert len(names) > 15 and all(f"\n## {words}\n" in page for words in names)
    assert all(f"- **{end.value}**: {end.meaning}" in page for end in Exit)


def test_every_public_name_has_words_and_stands_on_the_page():
    page = (FOLDER / "python.md").read_text()
    for name in hqlt_lab.__all__:
        thing = getattr(hqlt_lab, name)
        assert f"\n## lab.{name}\n" in page and f"lab.{name}(" in page
        assert thing.__doc__ or importlib.import_module(thing.__module__).__doc__
