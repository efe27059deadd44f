"""A text that is no YAML is told in plain words, with the line to look at."""

import time

import pytest
import yaml

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.read import read
from hqlt_lab.experiment.yaml_mistakes import told_plainly

# what is written below `question: Does it?`, the line and the sentence
TEXTS = {
    "a colon": ("title: This: or that?", 2, 'a text with a colon needs quotes: title: "This: or that?"'),
    "a tab": ("model:\n\twidth: 64", 3, "begins with a tab. Use spaces, two for each level."),
    "a tab, written on Windows": ("model:\r\n\twidth: 64\r\n", 3, "begins with a tab."),
    "a bracket at the end": ("task: {name: parity", 2, "the bracket { is not closed: its } is missing at the end."),
    "a bracket after a comma": ("task: [1,\n", 2, "the bracket [ is not closed: its ] is missing at the end."),
    "a bracket": ("task: {name: parity\nseeds: 1\n", 2, "the bracket { is not closed: its } is missing before line 3."),
    "a bracket too many": ("task: {name: parity}}\n", 2, "the bracket } was not opened."),
    "a comma": ("task: {name: parity label: x}", 2, "a comma is missing in 'task: {name: parity label: x}'"),
    "a quote": ('title: "Does it?\ntask: parity\n', 2, 'the quote " is not closed.'),
    "a quote inside": ("title: 'It's so'", 2, 'the text ends before "s so\'". With a \' in it, it needs " around it.'),
    "a backslash": ('title: "\\d"', 2, "a text with a backslash needs single quotes"),
    "a level too deep": ("task: parity\n  label: x", 3, "stands deeper than line 2, which has a value already."),
    "a level between": ("task:\n  name: parity\n label: x", 4, "begins in a column of its own: 'label: x'."),
    "no colon": ("task parity\nseeds: 1", 2, "a colon is missing in 'task parity'."),
    "no colon in a section": ("task:\n  name parity\n  label: x", 3, "a colon is missing in 'name parity'."),
    "no space": ("task:parity\nseeds: 1", 2, "a space is missing after the colon of 'task:'."),
    "a first letter": ("task: @parity", 2, 'a text that begins with @ needs quotes: "@parity"'),
    "a star": ("task: *parity", 2, 'a text that begins with * needs quotes: "*parity"'),
    "a key twice": ("task: parity\ntask: parity", 3, "'task' stands there twice. Leave one of them out."),
    "two documents": ("---\ntask: parity", 2, "--- begins a second experiment."),
    "a list with a key": ("arms:\n  - a: {}\n  b: {}", 4, "stands in a list without a dash."),
}
JARGON = ("mapping", "scalar", "token", "parsing", "scanning", "stream", "column 1", "<unicode", "Constructor", "flow")


@pytest.mark.parametrize(("text", "line", "says"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_yaml_is_told_in_plain_words(text, line, says, tmp_path):
    file = tmp_path / "q.yaml"
    file.write_bytes(f"question: Does it?\n{text}".encode())
    with pytest.raises(HqltError) as told:
        load(file)
    assert str(told.value).startswith(f"{file}, line {line}: {says}")
    assert "\n" not in str(told.value) and not any(word in str(told.value) for word in JARGON)


@pytest.mark.parametrize("text", [text for name, (text, *_) in TEXTS.items() if name != "a key twice"])
def test_the_words_do_not_depend_on_which_parser_is_installed(text):
    with pytest.raises(yaml.YAMLError) as error:
        yaml.compose(f"question: Does it?\n{text}", Loader=yaml.SafeLoader)
    told = str(told_plainly(error.value, f"question: Does it?\n{text}"))
    assert not any(word in told for word in JARGON) and not told.startswith("is not YAML")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "\n\n", "{}"])
def test_an_empty_file_is_called_empty(text, tmp_path):
    (tmp_path / "q.yaml").write_text(text)
    with pytest.raises(HqltError, match=r"q\.yaml: is empty. An experiment begins with its question and its task"):
        load(tmp_path / "q.yaml")


def test_another_encoding_is_told_with_its_line(tmp_path):
    (tmp_path / "q.yaml").write_bytes("question: Does it?\ntask: parit\u00e9\n".encode("latin-1"))
    with pytest.raises(HqltError, match=r"q\.yaml, line 2: is not YAML in UTF-8"):
        load(tmp_path / "q.yaml")


@pytest.mark.parametrize("letter", ["-", " ", ":", ": ", "a: ", "{", "[", '"', "\u202e: "])
def test_a_long_line_is_told_as_soon_as_a_short_one(letter, tmp_path):
    (tmp_path / "q.yaml").write_text(f"a: b: {letter * (900_000 // len(letter.encode()))}\n{{")
    began = time.process_time()
    with pytest.raises(HqltError) as told:
        read(tmp_path / "q.yaml")
    assert time.process_time() - began < 5 and len(str(told.value)) < 1000 and "\u202e" not in str(told.value)
