"""What is wrong with a text that is no YAML, in a sentence that says what to do, and in which line.

A parser says where it gave up and what it was doing then ("mapping values are not allowed in this context"); what was
meant is seen from the line itself.  Each of the guesses below knows one mistake, and the first that fits is told.
"""

import re
from collections.abc import Callable

from yaml import MarkedYAMLError, YAMLError

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.yaml_trouble import Trouble, last_open, quoted, shown, trouble_of

COLON = re.compile(r"(?P<key>[\s-]*[^\s:#{\[\"'-][^:]*): +(?P<text>[^\"'{\[|>&*].*:(?: .*|$))")
SETTING = re.compile(r"[^\s:#][^:#]*: +[^\s#&|>]")  # a key with a value behind it
NO_SPACE = re.compile(r"[\w.]+:\w")
BRACKETS = {"{": "}", "[": "]"}
QUOTES = {"'": '"', '"': "'"}  # and what stands around a text with such a one
Told = tuple[int, str]  # the line, counted from 0, and the sentence


class NotYaml(ConfigError):
    """A text that nobody can read; `place` is put behind the name of its file."""

    place: str = ""


def by_tab(at: Trouble) -> Told | None:
    if "\t" not in at.here[: len(at.here) - len(at.here.lstrip())]:
        return None
    return at.line, "begins with a tab. Use spaces, two for each level."


def by_quote(at: Trouble) -> Told | None:
    """One that is not closed, closes too early, or begins a text with a backslash."""
    before = at.here[: at.column].rstrip()
    if at.opening in QUOTES and at.began is not None and "unexpected" in at.problem:
        return at.began, f"the quote {at.opening} is not closed."
    if "escape" in at.problem:
        return at.line, "a text with a backslash needs single quotes: '...'"
    if at.expects_key and before[-1:] in QUOTES and len(before) > 1:
        other = QUOTES[before[-1]]
        return at.line, f"the text ends before {shown(at.rest)}. With a {before[-1]} in it, it needs {other} around it."
    return None


def by_bracket(at: Trouble) -> Told | None:
    """One that is not closed or not opened, or something inside of it that is not parted by a comma."""
    if at.opening not in BRACKETS and at.letter in ("}", "]"):
        return at.line, f"the bracket {at.letter} was not opened."
    if not at.here.strip() and (found := last_open(at.lines)):
        return found[0], not_closed(found[1], " at the end")
    if at.began is None or at.opening not in BRACKETS:
        return None
    if at.rest and (at.line == at.began or at.here[:1] == " "):
        where = "in" if at.line == at.began else "in or before"
        return at.line, f"a comma is missing {where} {shown(at.here.strip())}, or a bracket is not closed."
    return at.began, not_closed(at.opening, f" before line {at.line + 1}" if at.rest else " at the end")


def not_closed(opening: str, end: str) -> str:
    return f"the bracket {opening} is not closed: its {BRACKETS[opening]} is missing{end}."


def by_colon(at: Trouble) -> Told | None:
    if "mapping values" not in at.problem or not (found := COLON.match(at.here)):
        return None
    key = found["key"].strip(" -")
    return at.line, f"a text with a colon needs quotes: {key if key.isprintable() else '...'}: {quoted(found['text'])}"


def by_missing_space(at: Trouble) -> Told | None:
    for line in (at.above(), at.line):
        if line is not None and (found := NO_SPACE.match(at.lines[line].strip())):
            return line, f"a space is missing after the colon of {shown(found[0][:-1])}."
    return None


def by_level(at: Trouble) -> Told | None:
    """A setting below one that has its value already, or between two levels."""
    above = at.above()
    if above is None or not at.rest:
        return None
    if "mapping values" in at.problem and SETTING.match(at.lines[above].strip()):
        return at.line, (
            f"stands deeper than line {above + 1}, which has a value already. "
            "Begin both in the same column, or move the value to a line of its own."
        )
    if "'-'" in at.problem:
        return at.line, "stands in a list without a dash. Begin it with one, or leave out the dashes above it."
    if at.expects_key and not at.here[: at.column].strip():
        return at.line, f"begins in a column of its own: {shown(at.here.strip())}. Begin it below what it belongs to."
    return None


def by_missing_colon(at: Trouble) -> Told | None:
    line = at.began if "expected ':'" in at.problem else at.above() if "mapping values" in at.problem else None
    if line is None or ":" in at.lines[line] or not (told := at.lines[line].strip()):
        return None
    return line, f"a colon is missing in {shown(told)}. A setting is written as name: value."


def by_first_letter(at: Trouble) -> Told | None:
    if "alias" in at.problem:
        return at.line, f"a text that begins with * needs quotes: {quoted(at.rest)}"
    if "cannot start any token" not in at.problem or not at.rest:
        return None
    return at.line, f"a text that begins with {at.letter} needs quotes: {quoted(at.rest)}"


def by_repetition(at: Trouble) -> Told | None:
    found = re.search(r"duplicate key (.*)", at.problem)
    return (at.line, f"{shown(found[1])} stands there twice. Leave one of them out.") if found else None


def by_second_document(at: Trouble) -> Told | None:
    if "another document" not in at.problem:
        return None
    return at.line, "--- begins a second experiment. Save it in a file of its own."


def by_anchors(at: Trouble) -> Told | None:
    """What is small in the file, and without end when it is laid out."""
    if "expansion" in at.problem:
        return 0, "with all that its anchors (&, *) repeat, the YAML holds more values than any experiment."
    return (at.line, "an anchor (&, *) of the YAML holds itself.") if "recursive" in at.problem else None


GUESSES: tuple[Callable[[Trouble], Told | None], ...] = (
    by_anchors, by_repetition, by_second_document, by_tab, by_quote, by_bracket, by_colon, by_missing_space,
    by_missing_colon, by_level, by_first_letter,
)  # fmt: skip


def told_plainly(error: YAMLError, text: str) -> NotYaml:
    """The same mistake, with its line where it is known."""
    if not isinstance(error, MarkedYAMLError):
        return NotYaml("is not YAML: it holds control characters. Save the experiment as plain text.")
    at = trouble_of(error, text)
    line, sentence = next((told for guess in GUESSES if (told := guess(at))), unknown(at))
    made = NotYaml(sentence)
    made.place = f", line {line + 1}"
    return made


def unknown(at: Trouble) -> Told:
    """No guess fits."""
    return at.line, f"is not YAML from {shown(at.rest or at.here)} on. A setting is written as name: value."
