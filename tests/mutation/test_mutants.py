"""The list of mutants stays applicable: each original text occurs once, and the closest tests exist."""

import ast
from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS
from tests.mutation.run_mutants import COPIED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_can_be_applied(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.original) == 1
    assert mutant.replacement != mutant.original
    assert mutant.tests and all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_mutants_have_distinct_names():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_folder_that_tests_import_is_copied():
    """A test that cannot be imported in the copy of the repository catches no mutant."""
    modules = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [])
        + ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        if name
    }
    folders = {module.partition(".")[0] for module in modules}
    assert "tests" in folders and {name for name in folders if (ROOT / name).is_dir()} <= {*COPIED}
