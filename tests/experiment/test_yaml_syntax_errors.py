"""YAML syntax errors are explained in plain words, with their line."""

import time

import pytest
import yaml

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.yaml.read_experiment_files import read_source
from hqlt_lab.experiment.yaml.syntax_errors import explain_yaml_error
from tests.issues import raises_issue

# text below `question: Does it?`, line and code of the issue
TEXTS = {
    "a colon": ("title: This: or that?", 2, "yaml_colon_in_text"),
    "a tab": ("model:\n\twidth: 64", 3, "yaml_tab"),
    "a tab, written on Windows": ("model:\r\n\twidth: 64\r\n", 3, "yaml_tab"),
    "a bracket at the end": ("task: {name: parity", 2, "yaml_unclosed_bracket"),
    "a bracket after a comma": ("task: [1,\n", 2, "yaml_unclosed_bracket"),
    "a bracket": ("task: {name: parity\nseeds: 1\n", 2, "yaml_unclosed_bracket"),
    "a bracket too many": ("task: {name: parity}}\n", 2, "yaml_unopened_bracket"),
    "a comma": ("task: {name: parity label: x}", 2, "yaml_missing_comma"),
    "a quote": ('title: "Does it?\ntask: parity\n', 2, "yaml_unclosed_quote"),
    "a quote inside": ("title: 'It's so'", 2, "yaml_quote_in_text"),
    "a backslash": ('title: "\\d"', 2, "yaml_backslash"),
    "a level too deep": ("task: parity\n  label: x", 3, "yaml_indented_too_deep"),
    "a level between": ("task:\n  name: parity\n label: x", 4, "yaml_indentation"),
    "no colon": ("task parity\nseeds: 1", 2, "yaml_missing_colon"),
    "no colon in a section": ("task:\n  name parity\n  label: x", 3, "yaml_missing_colon"),
    "no space": ("task:parity\nseeds: 1", 2, "yaml_missing_space"),
    "a first letter": ("task: @parity", 2, "yaml_reserved_character"),
    "a star": ("task: *parity", 2, "yaml_reserved_character"),
    "a key twice": ("task: parity\ntask: parity", 3, "yaml_duplicate_key"),
    "two documents": ("---\ntask: parity", 2, "yaml_second_document"),
    "a list with a key": ("arms:\n  - a: {}\n  b: {}", 4, "yaml_missing_dash"),
}
JARGON = ("mapping", "scalar", "token", "parsing", "scanning", "stream", "column 1", "<unicode", "Constructor", "flow")


@pytest.mark.parametrize(("text", "line", "code"), TEXTS.values(), ids=TEXTS)
def test_syntax_error_is_explained_in_plain_words(text, line, code, tmp_path):
    file = tmp_path / "q.yaml"
    file.write_bytes(f"question: Does it?\n{text}".encode())
    with raises_issue("", code) as error:
        load_experiment(file)
    assert [(issue.source, issue.line) for issue in error.value.issues] == [(str(file), line)]
    assert "\n" not in str(error.value) and not any(word in str(error.value) for word in JARGON)


@pytest.mark.parametrize("text", [text for name, (text, *_) in TEXTS.items() if name != "a key twice"])
def test_explanation_does_not_depend_on_the_installed_parser(text):
    with pytest.raises(yaml.YAMLError) as error:
        yaml.compose(f"question: Does it?\n{text}", Loader=yaml.SafeLoader)
    (issue,) = explain_yaml_error(error.value, f"question: Does it?\n{text}").issues
    assert not any(word in str(issue) for word in JARGON) and issue.code != "yaml_syntax"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "\n\n", "{}"])
def test_empty_file_is_reported_as_empty(text, tmp_path):
    (tmp_path / "q.yaml").write_text(text)
    with raises_issue("", "empty_file"):
        load_experiment(tmp_path / "q.yaml")


def test_wrong_encoding_is_reported_with_its_line(tmp_path):
    (tmp_path / "q.yaml").write_bytes("question: Does it?\ntask: parit\u00e9\n".encode("latin-1"))
    with raises_issue("", "not_utf8") as error:
        load_experiment(tmp_path / "q.yaml")
    assert error.value.issues[0].line == 2


@pytest.mark.parametrize("filler", ["-", " ", ":", ": ", "a: ", "{", "[", '"', "\u202e: "])
def test_very_long_line_is_explained_quickly(filler, tmp_path):
    (tmp_path / "q.yaml").write_text(f"a: b: {filler * (900_000 // len(filler.encode()))}\n{{")
    start = time.process_time()
    with pytest.raises(HqltError) as error:
        read_source(tmp_path / "q.yaml")
    assert time.process_time() - start < 5 and len(str(error.value)) < 1000 and "\u202e" not in str(error.value)
