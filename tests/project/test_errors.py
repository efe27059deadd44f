"""Errors carry issues: paths can be prefixed, several issues are rendered line by line, and they survive pickling."""

import ast
import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import hqlt_lab
from hqlt_lab.errors import ConfigError, ConfigIssue, RegistryError, StoreError, issues_under, join_path, list_issues
from hqlt_lab.experiment.validate.issue_collector import ExperimentError, IssueCollector
from hqlt_lab.experiment.yaml.source_map import SourceMap
from hqlt_lab.registry.plugins import CodeChanged

ISSUE = ConfigIssue("heads", "width_not_divisible", "8 channels do not divide.", "Use 2.", other_paths=("width",))
ROOT = Path(hqlt_lab.__file__).parents[1]


def test_prefix_applies_to_all_paths_of_an_issue_and_keeps_the_rest():
    issue = ISSUE.under("model")
    assert (issue.path, issue.other_paths) == ("model.heads", ("model.width",))
    assert (issue.code, issue.message, issue.hint) == (ISSUE.code, ISSUE.message, ISSUE.hint)


@pytest.mark.parametrize(
    ("parent", "path", "joined"),
    [("model", "", "model"), ("", "heads", "heads"), ("mixer", "[1].name", "mixer[1].name"), ("", "", "")],
)
def test_paths_are_joined_without_empty_keys(parent, path, joined):
    assert join_path(parent, path) == joined


def test_text_of_an_issue_has_source_line_arms_paths_message_and_hint():
    issue = ConfigIssue("lr", "not_positive", "No.", "Use 1.", arms=("a, b", "c", "d"), source="q.yaml", line=3)
    assert str(issue) == "q.yaml, line 3: arm 'a, b' and 2 more: lr: No. Use 1."
    assert str(ISSUE) == "heads, width: 8 channels do not divide. Use 2."
    assert str(ConfigIssue("", "empty_file", "the file is empty.", source="q.yaml")) == "q.yaml: the file is empty."


def test_nested_prefixes_add_up_and_the_type_of_the_error_is_kept():
    with pytest.raises(RegistryError) as error, issues_under("arms.a"), issues_under("model"):
        raise RegistryError.at("mixer", "unknown_component", "no mixer is called 'x'.")
    assert [issue.path for issue in error.value.issues] == ["arms.a.model.mixer"]


def test_error_is_a_value_error_with_a_line_per_issue():
    error = ConfigError(ISSUE, ISSUE.under("model"))
    assert isinstance(error, ValueError) and len(str(error).splitlines()) == 2
    with pytest.raises(TypeError, match=r"ConfigError\.at"):
        ConfigError("heads: 8 channels do not divide.")


def test_error_of_another_kind_becomes_an_issue_without_a_path():
    (issue,) = list_issues(StoreError("The disk is full."))
    assert (issue.path, issue.code, issue.message) == ("", "other_error", "The disk is full.")


def test_errors_can_be_sent_to_another_process():
    error = ExperimentError(ISSUE)
    error.file = "q.yaml"
    for original in (error, CodeChanged(ISSUE), ConfigError(ISSUE, ISSUE)):
        copy = pickle.loads(pickle.dumps(original))
        assert (type(copy), copy.issues, str(copy)) == (type(original), original.issues, str(original))


def test_issue_can_be_restored_from_json():
    issue = replace(ISSUE, arms=("a, b",), source="q.yaml", line=3)
    assert ConfigIssue.from_dict(json.loads(json.dumps(asdict(issue)))) == issue


def test_collector_adds_an_equal_issue_once_and_finds_the_section_by_the_whole_key(tmp_path):
    collector = IssueCollector(tmp_path / "q.yaml", SourceMap())
    collector.add(ConfigIssue("armsy.b", "unknown_section", "No."), ConfigIssue("armsy.b", "unknown_section", "No."))
    assert len(collector.issues) == 1 and collector.has_issue_in("armsy") and not collector.has_issue_in("arms")


def test_no_code_splits_or_searches_the_text_of_our_errors():
    """Handlers of our errors neither split nor search the text; those with issues have paths and codes."""
    for folder in ("hqlt_lab", "registry", "components"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ExceptHandler) and node.name and catches_lab_error(node.type):
                    assert not reads_text(node), f"{file}:{node.lineno}"


LAB_ERRORS = ("ConfigError", "RegistryError", "IssueError", "HqltError", "TrainingError", "StoreError")


def catches_lab_error(handled):
    return any(getattr(node, "id", "") in LAB_ERRORS for node in ast.walk(handled))


def reads_text(handler):
    """Return whether `str(error)` is followed by a method or used with `in`."""
    for node in ast.walk(handler):
        operands = [node.value] if isinstance(node, ast.Attribute) else getattr(node, "comparators", [])
        if any(ast.unparse(operand) == f"str({handler.name})" for operand in operands):
            return True
    return False


PARSING_METHODS = (
    "split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "find", "index", "replace",
)  # fmt: skip
TEXT_FIELDS = ("message", "hint", "title", "arm", "detail")  # of issues, arms, records, rows and check results


def test_no_code_splits_or_searches_a_message_or_a_title():
    """Messages and titles are for people. Code reads the path and code of an issue, the name and levels of an arm."""
    for folder in ("hqlt_lab", "registry", "components"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                assert not parses_text_field(node), f"{file}:{node.lineno}: {ast.unparse(node)}"


def parses_text_field(node):
    """Return whether a node is a call such as `issue.message.split(...)`, or a search such as `"x" in record.arm`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARSING_METHODS:
        texts = [node.func.value]
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        texts = node.comparators
    else:
        return False
    return any(isinstance(text, ast.Attribute) and text.attr in TEXT_FIELDS for text in texts)
