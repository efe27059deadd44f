"""The list of mutants stays applicable: each original text occurs once, and the closest tests exist."""

from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_can_be_applied(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.original) == 1
    assert mutant.replacement != mutant.original
    assert mutant.tests and all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_mutants_have_distinct_names():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
