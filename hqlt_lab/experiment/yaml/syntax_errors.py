"""Explain YAML syntax errors: the line and the likely mistake, in a sentence with what to do.

A YAML parser reports where it failed and what it was parsing ("mapping values are not allowed in this context"). The
likely mistake is visible in the text of that line. Each `diagnose_*` function recognizes one mistake; the first match
of DIAGNOSES is reported.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from yaml import MarkedYAMLError, YAMLError

from hqlt_lab.errors import ConfigError, ConfigIssue

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks of YAML
MAX_EXCERPT, MAX_LINE_LENGTH = 60, 500  # characters of a line that are quoted, and inspected
UNQUOTED_COLON = re.compile(r"(?P<key>[\s-]*[^\s:#{\[\"'-][^:]*): +(?P<text>[^\"'{\[|>&*].*:(?: .*|$))")
KEY_WITH_VALUE = re.compile(r"[^\s:#][^:#]*: +[^\s#&|>]")  # a key and its value in one line
MISSING_SPACE = re.compile(r"[\w.]+:\w")
BRACKETS = {"{": "}", "[": "]"}
SETTING_HINT = "A setting is written as name: value."
QUOTES = {"'": '"', '"': "'"}  # each quote, and the one to use around a text that contains it


class Diagnosis(NamedTuple):
    """A recognized mistake."""

    line: int  # counted from 0
    code: str
    message: str
    hint: str = ""


class ParseFailure(NamedTuple):
    """Where the parser failed, and what it was parsing."""

    lines: list[str]
    problem: str  # the parser's message
    line: int  # counted from 0, as `column`
    column: int
    context_line: int | None  # the line in which the construct being parsed starts
    context_character: str  # the character at its start

    @property
    def line_text(self) -> str:
        """The text of the line where the parser failed."""
        return self.lines[self.line]

    @property
    def remaining_text(self) -> str:
        """The text of the line from the column on, stripped."""
        return self.line_text[self.column :].strip()

    @property
    def next_character(self) -> str:
        """The first character of the remaining text, or ""."""
        return self.remaining_text[:1]

    @property
    def expects_key(self) -> bool:
        """Whether the parser expected the next key of a mapping; the C and the Python parser word it differently."""
        return "expected key" in self.problem or "<block end>" in self.problem

    def previous_line(self) -> int | None:
        """Return the number of the last line before this one that is not empty or a comment, or None."""
        numbers = (n for n in reversed(range(self.line)) if self.lines[n].split("#")[0].strip())
        return next(numbers, None)


def locate_failure(error: MarkedYAMLError, text: str) -> ParseFailure:
    """Return where and what the parser failed to parse, from its error and the text."""
    # the last line is empty because the parser may fail at the end of the text
    lines = [*(line[:MAX_LINE_LENGTH] for line in LINE_BREAK.split(text)), ""]
    problem, context = error.problem_mark or error.context_mark, error.context_mark
    line, column = (min(problem.line, len(lines) - 1), problem.column) if problem else (0, 0)
    opening = lines[context.line][context.column : context.column + 1] if context and context.line < len(lines) else ""
    return ParseFailure(lines, error.problem or "", line, column, context.line if opening else None, opening)


def find_unclosed_bracket(lines: list[str]) -> tuple[int, str] | None:
    """Return line and character of the last bracket that is not closed, or None. Quotes are not considered."""
    open_brackets: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        for character in line:
            if character in "{[":
                open_brackets.append((number, character))
            elif character in "}]" and open_brackets:
                open_brackets.pop()
    return open_brackets[-1] if open_brackets else None


def quote_excerpt(text: str) -> str:
    """Return the first characters of a text, in quotes."""
    return repr(text[:MAX_EXCERPT])


def quote_value(text: str) -> str:
    """Return a text in quotes as it can be written in YAML, shortened, with control characters escaped."""
    excerpt = text if len(text) <= 2 * MAX_EXCERPT else f"{text[: 2 * MAX_EXCERPT]}..."
    return repr(excerpt) if not excerpt.isprintable() or '"' in excerpt else f'"{excerpt}"'


def diagnose_tab(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a tab in the indentation."""
    if "\t" not in failure.line_text[: len(failure.line_text) - len(failure.line_text.lstrip())]:
        return None
    return Diagnosis(failure.line, "yaml_tab", "the line begins with a tab.", "Use spaces, two for each level.")


def diagnose_quote(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a quote that is not closed or closes too early, and an invalid escape sequence."""
    before = failure.line_text[: failure.column].rstrip()
    if failure.context_character in QUOTES and failure.context_line is not None and "unexpected" in failure.problem:
        message = f"the quote {failure.context_character} is not closed."
        return Diagnosis(failure.context_line, "yaml_unclosed_quote", message)
    if "escape" in failure.problem:
        return Diagnosis(failure.line, "yaml_backslash", "a text with a backslash needs single quotes: '...'")
    if failure.expects_key and before[-1:] in QUOTES and len(before) > 1:
        other = QUOTES[before[-1]]
        message = f"the text ends before {quote_excerpt(failure.remaining_text)}."
        hint = f"Put {other} around a text that contains {before[-1]}."
        return Diagnosis(failure.line, "yaml_quote_in_text", message, hint)
    return None


def diagnose_bracket(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a bracket that is not closed or not opened, and a missing comma inside brackets."""
    if failure.context_character not in BRACKETS and failure.next_character in ("}", "]"):
        message = f"the bracket {failure.next_character} was not opened."
        return Diagnosis(failure.line, "yaml_unopened_bracket", message)
    if not failure.line_text.strip() and (unclosed := find_unclosed_bracket(failure.lines)):
        return diagnose_unclosed_bracket(unclosed[0], unclosed[1], " at the end")
    if failure.context_line is None or failure.context_character not in BRACKETS:
        return None
    if failure.remaining_text and (failure.line == failure.context_line or failure.line_text[:1] == " "):
        preposition = "in" if failure.line == failure.context_line else "in or before"
        excerpt = quote_excerpt(failure.line_text.strip())
        message = f"a comma is missing {preposition} {excerpt}, or a bracket is not closed."
        return Diagnosis(failure.line, "yaml_missing_comma", message)
    end = f" before line {failure.line + 1}" if failure.remaining_text else " at the end"
    return diagnose_unclosed_bracket(failure.context_line, failure.context_character, end)


def diagnose_unclosed_bracket(line: int, opening: str, end: str) -> Diagnosis:
    message = f"the bracket {opening} is not closed: its {BRACKETS[opening]} is missing{end}."
    return Diagnosis(line, "yaml_unclosed_bracket", message)


def diagnose_colon(failure: ParseFailure) -> Diagnosis | None:
    """Recognize an unquoted value that contains a colon."""
    if "mapping values" not in failure.problem or not (match := UNQUOTED_COLON.match(failure.line_text)):
        return None
    key = match["key"].strip(" -")
    example = f"{key if key.isprintable() else '...'}: {quote_value(match['text'])}"
    return Diagnosis(failure.line, "yaml_colon_in_text", f"a text with a colon needs quotes: {example}")


def diagnose_missing_space(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a missing space after a colon, in this line or the one before."""
    for line in (failure.previous_line(), failure.line):
        if line is not None and (match := MISSING_SPACE.match(failure.lines[line].strip())):
            message = f"a space is missing after the colon of {quote_excerpt(match[0][:-1])}."
            return Diagnosis(line, "yaml_missing_space", message)
    return None


def diagnose_indentation(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a setting indented below one that has a value, or at a column between two levels."""
    previous = failure.previous_line()
    if previous is None or not failure.remaining_text:
        return None
    if "mapping values" in failure.problem and KEY_WITH_VALUE.match(failure.lines[previous].strip()):
        message = f"the line is indented deeper than line {previous + 1}, which already has a value."
        hint = "Begin both in the same column, or move the value to a line of its own."
        return Diagnosis(failure.line, "yaml_indented_too_deep", message, hint)
    if "'-'" in failure.problem:
        hint = "Begin it with a dash, or remove the dashes above it."
        return Diagnosis(failure.line, "yaml_missing_dash", "a dash is missing in front of this line of a list.", hint)
    if failure.expects_key and not failure.line_text[: failure.column].strip():
        excerpt = quote_excerpt(failure.line_text.strip())
        message = f"the indentation of {excerpt} does not fit any level."
        return Diagnosis(failure.line, "yaml_indentation", message, "Align it with the settings of its section.")
    return None


def diagnose_missing_colon(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a line without a colon."""
    line = (
        failure.context_line
        if "expected ':'" in failure.problem
        else failure.previous_line()
        if "mapping values" in failure.problem
        else None
    )
    if line is None or ":" in failure.lines[line] or not (text := failure.lines[line].strip()):
        return None
    return Diagnosis(line, "yaml_missing_colon", f"a colon is missing in {quote_excerpt(text)}.", SETTING_HINT)


def diagnose_first_character(failure: ParseFailure) -> Diagnosis | None:
    """Recognize an unquoted value that starts with a reserved character, such as * or @."""
    if "alias" in failure.problem:
        message = f"a text that begins with * needs quotes: {quote_value(failure.remaining_text)}"
        return Diagnosis(failure.line, "yaml_reserved_character", message)
    if "cannot start any token" not in failure.problem or not failure.remaining_text:
        return None
    message = f"a text that begins with {failure.next_character} needs quotes: {quote_value(failure.remaining_text)}"
    return Diagnosis(failure.line, "yaml_reserved_character", message)


def diagnose_duplicate_key(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a key that occurs twice in a mapping."""
    match = re.search(r"duplicate key (.*)", failure.problem)
    if not match:
        return None
    message = f"{quote_excerpt(match[1])} occurs twice."
    return Diagnosis(failure.line, "yaml_duplicate_key", message, "Remove one of them.")


def diagnose_second_document(failure: ParseFailure) -> Diagnosis | None:
    """Recognize a second YAML document in the file."""
    if "another document" not in failure.problem:
        return None
    hint = "Save it in a file of its own."
    return Diagnosis(failure.line, "yaml_second_document", "--- begins a second document.", hint)


def diagnose_anchors(failure: ParseFailure) -> Diagnosis | None:
    """Recognize anchors that expand to too many values, or contain themselves."""
    if "expansion" in failure.problem:
        message = "with all anchors (&, *) expanded, the YAML has too many values."
        return Diagnosis(0, "yaml_anchor_expansion", message)
    if "recursive" in failure.problem:
        return Diagnosis(failure.line, "yaml_recursive_anchor", "an anchor (&, *) of the YAML contains itself.")
    return None


DIAGNOSES: tuple[Callable[[ParseFailure], Diagnosis | None], ...] = (
    diagnose_anchors,
    diagnose_duplicate_key,
    diagnose_second_document,
    diagnose_tab,
    diagnose_quote,
    diagnose_bracket,
    diagnose_colon,
    diagnose_missing_space,
    diagnose_missing_colon,
    diagnose_indentation,
    diagnose_first_character,
)


def explain_yaml_error(error: YAMLError, text: str) -> ConfigError:
    """Return an error that explains the parser's error, with its line if it is known."""
    if not isinstance(error, MarkedYAMLError):
        return ConfigError.at(
            "", "yaml_syntax", "the file is not YAML: it has control characters.", "Save the experiment as plain text."
        )
    failure = locate_failure(error, text)
    diagnoses = (diagnosis for diagnose in DIAGNOSES if (diagnosis := diagnose(failure)))
    line, code, message, hint = next(diagnoses, diagnose_unknown(failure))
    return ConfigError(ConfigIssue("", code, message, hint, line=line + 1))


def diagnose_unknown(failure: ParseFailure) -> Diagnosis:
    """Return a general message, if no diagnosis matches."""
    excerpt = quote_excerpt(failure.remaining_text or failure.line_text)
    return Diagnosis(failure.line, "yaml_syntax", f"the text from {excerpt} on is not valid YAML.", SETTING_HINT)
