"""The golden file holds the wording of every error with a code. `make messages` writes it again."""

import ast
import re
from pathlib import Path

import pytest

import hqlt_lab
from hqlt_lab.experiment.validate.arm_checks import ALLOWABLE_ISSUES
from tests.golden.config_message_cases import (
    CASES,
    GOLDEN_FILE,
    list_lm_eval_cases,
    render_cases,
    render_file_cases,
)

REMEDY = "If the new wording is right, write it into the golden file: make messages"
ROOT = Path(hqlt_lab.__file__).parents[1]
UNPLAIN_WORDS = re.compile(r"(?<!there) is no |whoever|so many|\btold\b|asked for|goes on|stands there")


@pytest.fixture(scope="module")
def golden_lines():
    return set(GOLDEN_FILE.read_text().splitlines())


def test_messages_of_invalid_experiment_files_are_those_of_the_golden_file(golden_lines):
    assert set(render_file_cases()) - golden_lines == set(), REMEDY


def test_all_other_messages_are_those_of_the_golden_file(golden_lines):
    assert set(render_cases(CASES)) - golden_lines == set(), REMEDY


@pytest.mark.slow
def test_golden_file_has_no_other_messages(golden_lines):
    rendered = {*render_file_cases(), *render_cases(CASES), *render_cases(list_lm_eval_cases())}
    assert rendered == golden_lines, REMEDY


def test_every_code_of_the_package_is_in_the_golden_file(golden_lines):
    codes = {code for folder in ("hqlt_lab", "registry", "components") for code in find_codes(ROOT / folder)}
    assert len(codes) > 150
    assert {*codes, *ALLOWABLE_ISSUES} == {line.partition(" | ")[0] for line in golden_lines}


def test_messages_are_plain_sentences(golden_lines):
    for line in golden_lines:
        assert not UNPLAIN_WORDS.search(line), line


def find_codes(folder):
    """Yield the literal codes of issues in the source files of a folder: the second argument, or `code=`."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                arguments = node.args[1:2] if name in ("ConfigIssue", "Diagnosis", "at") else []
                arguments += [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                yield from (a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str))
