"""Count phrases that the style rules of CONTRIBUTING.md replace, in everything a person reads.

    python tests/project/count_prose.py [FOLDER] [--list]      default: this repository

Reads Markdown, comments of YAML files, HTML and component templates, and docstrings and comments of Python code. Inside
the package it also reads messages: string literals of at least three words, such as help texts and errors. Prints the
counts by phrase and source; with `--list` also file, line and text of each finding. For the figures of an older
commit:

    mkdir /tmp/before && git archive 7c80686~1 | tar -x -C /tmp/before
    python tests/project/count_prose.py /tmp/before
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE_FOLDERS = ("hqlt_lab", "components", "registry")
PYTHON_FOLDERS = (*PACKAGE_FOLDERS, "benchmarks", "docs", "tests")
SKIPPED_FOLDERS = {".git", ".venv", ".audit", ".hypothesis", ".typecheck", "build", "site", "runs", "node_modules"}

PHRASES = {
    "told": r"\btold\b",
    "whoever": r"\bwhoever\b",
    "somebody": r"\bsomebody\b",
    "nobody": r"\bnobody\b",
    "go on": r"\b(?:go|goes|going|gone|went) on\b(?!-)",
    "what came of": r"\bwhat (?:came|comes|becomes|became) of\b",
    "looked at": r"\blooked at\b",
    "so many": r"\bso many\b",
    "as far as": r"\bas far as\b",
    "is no X": r"(?<!\bthere\s)\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|other\b)[a-z]",
    # programs and files do not speak
    "say": r"\b(?:say|says|said|saying)\b",
    "ask": r"\b(?:ask|asks|asked|asking)\b",
    "who": r"(?<!people\s)(?<!yone\s)(?<!students\s)(?<!researchers\s)(?<!reviewers\s)\bwho\b(?!\scan\sopen)",
    # private words for reference, folder, capacity, environment, worker, health check and label
    "truth": r"(?<!ground\s)\btruths?\b",
    "shelf": r"\b(?:shelf|shelves)\b",
    "room": r"(?<!a\s)(?<!the\s)\brooms?\b",
    "house": r"\bhouses?\b",
    "world": r"(?<!real\s)\bworlds?\b(?!\ssize)",
    "crew": r"\b(?:crews?|errands?|couriers?|canary|canaries|knocking|lessons?)\b",
}
DOCSTRING_OPENING = "docstring opening"  # a docstring that begins with one of these cannot be read alone
OPENING_PATTERN = (
    r"(?:The same|Of|Those|Their|These|They|It|Others|Not|There and back|And|Also|As above|As before|Likewise|Ditto|"
    r"Such|That|This is)\b"
)
SOURCES = ("markdown", "yaml", "html", "template", "docstring", "comment", "message")

# phrases that are right where they stand: (end of the file's path, part of the text)
ALLOWED: tuple[tuple[str, str], ...] = (
    ("CONTRIBUTING.md", "**environment**, not world"),  # the list of private words
    ("CONTRIBUTING.md", "not truth; **label** or target, not lesson"),
    ("docs/faq.md", "Frequently asked questions"),
    ("study/ledger/ledger.py", "ask  ->"),  # Optuna's method
)


class Prose(NamedTuple):
    """A piece of text that a person reads."""

    file: Path
    line: int
    source: str  # one of SOURCES
    text: str


class Finding(NamedTuple):
    """A phrase found in a piece of text."""

    file: Path
    line: int
    source: str
    phrase: str
    text: str

    def describe(self) -> str:
        return f"{self.file}:{self.line}: {self.phrase} ({self.source}): {self.text}"


def find_phrases(root: Path = ROOT) -> list[Finding]:
    """Return all findings below a folder, without the allowed ones."""
    return [
        Finding(prose.file.relative_to(root), prose.line + line, prose.source, phrase, text)
        for prose in read_prose(root)
        for line, phrase, text in find_in_text(prose)
        if not is_allowed(prose.file, text)
    ]


def find_in_text(prose: Prose) -> Iterator[tuple[int, str, str]]:
    """Yield line offset, phrase and line of each finding. Skips names in backticks; phrases may span a line break."""
    text = re.sub(r"`[^`\n]*`", lambda match: "`" * len(match[0]), prose.text)
    for phrase, pattern in PHRASES.items():
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE):
            yield text[: match.start()].count("\n"), phrase, surrounding_line(prose.text, match.start())
    if prose.source == "docstring" and re.match(OPENING_PATTERN, prose.text):
        yield 0, DOCSTRING_OPENING, surrounding_line(prose.text, 0)


def surrounding_line(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 :].split("\n", 1)[0].strip()


def is_allowed(file: Path, text: str) -> bool:
    return any(file.as_posix().endswith(path) and part in text for path, part in ALLOWED)


def read_prose(root: Path) -> Iterator[Prose]:
    """Yield everything a person reads in a repository."""
    for file in sorted(files_below(root)):
        if file.suffix == ".md":
            yield Prose(file, 1, "markdown", file.read_text())
        elif file.suffix in (".yaml", ".yml"):
            yield Prose(file, 1, "yaml", keep_yaml_comments(file.read_text()))
        elif file.suffix == ".txt" and file.parent.name == "templates":
            yield Prose(file, 1, "template", file.read_text())
        elif file.suffix in (".html", ".j2") and file.relative_to(root).parts[0] in PACKAGE_FOLDERS:
            yield Prose(file, 1, "html", re.sub(r"<[^>]*>|{%.*?%}|{#.*?#}", "", file.read_text()))
        elif file.suffix == ".py" and file.relative_to(root).parts[0] in PYTHON_FOLDERS:
            yield from read_python(file, with_messages=file.relative_to(root).parts[0] in PACKAGE_FOLDERS)


def files_below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            if path.name not in SKIPPED_FOLDERS and not path.name.endswith((".egg-info", "_cache", "__pycache__")):
                yield from files_below(path)
        elif path.is_file():
            yield path


def keep_yaml_comments(text: str) -> str:
    """Return the comments of a YAML file, each in its line."""
    return "\n".join((re.search(r"(?:^|\s)#(.*)", line) or [None, ""])[1] for line in text.split("\n"))


def read_python(file: Path, *, with_messages: bool) -> Iterator[Prose]:
    """Yield the docstrings and comments of a module, and its messages on request."""
    text = file.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value): node.value for node in nodes if is_docstring(node)}
    for node in docstrings.values():
        yield Prose(file, node.lineno, "docstring", node.value)
    if with_messages:
        strings = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        for node in strings:
            if id(node) not in docstrings and len(node.value.split()) >= 3:
                yield Prose(file, node.lineno, "message", node.value)
    if re.search("|".join(PHRASES.values()), text, re.IGNORECASE):  # tokenizing is slow
        yield from read_comments(file, text)


def read_comments(file: Path, text: str) -> Iterator[Prose]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(file, token.start[0], "comment", token.string.lstrip("# "))


def is_docstring(node: ast.AST) -> bool:
    """Return True for a string that is a statement: also the help text below a field of a dataclass."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def main() -> None:
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("--")]
    findings = find_phrases((folders or [ROOT])[0].resolve())
    counts = Counter((finding.phrase, finding.source) for finding in findings)
    counts.update(("all", finding.source) for finding in findings)
    print(f"{'':20}" + "".join(f"{source:>11}" for source in (*SOURCES, "all")))
    for phrase in (*PHRASES, DOCSTRING_OPENING, "all"):
        row = [counts[phrase, source] for source in SOURCES]
        print(f"{phrase:20}" + "".join(f"{count:>11}" for count in (*row, sum(row))))
    if "--list" in sys.argv:
        for finding in findings:
            print(finding.describe())


if __name__ == "__main__":
    main()
