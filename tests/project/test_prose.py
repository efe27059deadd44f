"""Pages, docstrings, comments and messages are free of the phrases that CONTRIBUTING.md replaces."""

import re

import pytest

from tests.project.count_prose import ALLOWED, DOCSTRING_OPENING, PHRASES, ROOT, find_phrases

EXAMPLES = {
    "told": "Mistakes are told at once.",
    "whoever": "Whoever comes next resumes it.",
    "somebody": "A file from somebody else.",
    "nobody": "Nobody else may set it.",
    "go on": "The study goes\non.",
    "what came of": "What came of a cell.",
    "looked at": "The jobs are looked at.",
    "so many": "At most so many cells.",
    "as far as": "As far as they are known.",
    "is no X": "A cell is no file.",
    "say": "The reply says why.",
    "ask": "The worker asks for a cell.",
    "who": "A process who trains.",
    "truth": "A backend and the truth.",
    "shelf": "On its shelf.",
    "room": "A queue that has room.",
    "house": "In this house.",
    "world": "An agent in its world.",
    "crew": "The crew of a study.",
    DOCSTRING_OPENING: "The same for a batch.",
}


@pytest.fixture(scope="module")
def findings():
    return find_phrases()


@pytest.mark.parametrize("source", ["markdown", "yaml", "html", "template", "docstring", "comment", "message"])
def test_prose_has_no_phrase_that_the_style_rules_replace(findings, source):
    found = [finding.describe() for finding in findings if finding.source == source]
    assert not found, f"{len(found)} phrases to rewrite:\n" + "\n".join(found)


def test_comments_of_experiment_files_have_at_most_120_columns():
    lines = {
        f"{file.name}:{number}": line
        for file in (ROOT / "experiments").rglob("*.yaml")
        for number, line in enumerate(file.read_text().split("\n"), 1)
    }
    assert lines and [place for place, line in lines.items() if len(line) > 120 and re.search(r"(?:^|\s)#", line)] == []


def test_every_allowed_exception_is_still_needed():
    texts = {path: [file.read_text() for file in ROOT.rglob(path)] for path, _ in ALLOWED}
    assert [(path, part) for path, part in ALLOWED if not any(part in text for text in texts[path])] == []


def test_every_phrase_is_found_in_a_docstring(tmp_path):
    assert set(EXAMPLES) == {*PHRASES, DOCSTRING_OPENING}
    folder = tmp_path / "hqlt_lab"
    folder.mkdir()
    for number, (phrase, text) in enumerate(EXAMPLES.items()):
        (folder / f"module_{number}.py").write_text(f'"""{text}"""\n')
        found = [finding for finding in find_phrases(tmp_path) if finding.file.name == f"module_{number}.py"]
        assert [finding.phrase for finding in found] == [phrase]


@pytest.mark.parametrize("opening", ["The same", "And", "Also", "As above", "Likewise", "Such", "That", "This is"])
def test_docstrings_that_continue_another_one_are_found(opening, tmp_path):
    (tmp_path / "hqlt_lab").mkdir()
    (tmp_path / "hqlt_lab/module.py").write_text(f'def f():\n    """{opening} for a batch."""\n')
    assert [finding.phrase for finding in find_phrases(tmp_path)] == [DOCSTRING_OPENING]


def test_phrases_are_found_in_all_kinds_of_files(tmp_path):
    (tmp_path / "hqlt_lab").mkdir()
    (tmp_path / "page.md").write_text("# Title\n\nNobody\n")
    (tmp_path / "file.yaml").write_text("question: nobody\nseeds: 3  # nobody\n")
    (tmp_path / "hqlt_lab/page.html").write_text("<p class=nobody>Nobody</p>\n")
    (tmp_path / "hqlt_lab/templates").mkdir()
    (tmp_path / "hqlt_lab/templates/mixer.txt").write_text('"""A mixer that nobody needs."""\n')
    (tmp_path / "hqlt_lab/module.py").write_text('x = ["nobody", f"it is nobody {1}"]  # nobody\n')
    found = [(finding.file.name, finding.line, finding.source) for finding in find_phrases(tmp_path)]
    assert sorted(found) == [
        ("file.yaml", 2, "yaml"),
        ("mixer.txt", 1, "template"),
        ("module.py", 1, "comment"),
        ("module.py", 1, "message"),
        ("page.html", 1, "html"),
        ("page.md", 3, "markdown"),
    ]


def test_ordinary_uses_are_not_found(tmp_path):
    (tmp_path / "page.md").write_text(
        "There is no file. It is no longer read. `told` was a keyword. A run is ongoing.\n"
        "It is for researchers who compare designs. The ground truth. The agent enters the room. Rank and world size.\n"
    )
    assert find_phrases(tmp_path) == []
