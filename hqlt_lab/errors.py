"""Exception classes of hqlt_lab, and helpers for error messages.

    HqltError
    ├── IssueError          carries `issues`, a tuple of ConfigIssue                     (also a ValueError)
    │   ├── RegistryError   unknown component, name registered twice, or unknown option
    │   └── ConfigError     invalid settings of a model, a task or an experiment
    ├── TrainingError       a run that cannot continue
    └── StoreError          a study, a tracking store or prepared data that cannot be read or written

An issue is data: the path of the setting, a stable code, what is wrong, and what to do about it. Code decides by path
and code; only people read the message. `tests/golden/config_messages.txt` holds the wording of every code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Self


@dataclass(frozen=True)
class ConfigIssue:
    """One mistake in a setting or an argument."""

    path: str  # of the exact setting, such as "model.update_rule.beta"; "" for a whole file
    code: str  # stable identifier of the kind of mistake, such as "unknown_option"
    message: str  # what is wrong, without the path
    hint: str = ""  # what to do, the nearest valid name, or the valid choices
    arms: tuple[str, ...] = ()  # titles of the arms that have it; empty for all arms, or none in particular
    other_paths: tuple[str, ...] = ()  # further settings that cause it together with `path`
    source: str = ""  # the file, or `--set PATH`, where the mistake is written
    line: int | None = None  # in that file

    def under(self, parent: str) -> Self:
        """Return the issue with all its paths inside of `parent`: "heads" under "model" is "model.heads"."""
        return replace(
            self,
            path=join_path(parent, self.path),
            other_paths=tuple(join_path(parent, path) for path in self.other_paths),
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the issue of which `dataclasses.asdict` made a mapping, also after JSON, which has no tuples."""
        return cls(**{**content, "arms": tuple(content["arms"]), "other_paths": tuple(content["other_paths"])})

    @property
    def location(self) -> str:
        """The source and line, such as "question.yaml, line 7", or ""."""
        source = self.source if self.source.isprintable() else repr(self.source)
        line = "" if self.line is None else f"line {self.line}"
        return ", ".join(part for part in (source, line) if part)

    def __str__(self) -> str:
        return self.format(self.location)

    def format(self, location: str) -> str:
        """Return the issue as text with this location in front: location, arms, paths, message and hint."""
        arms = format_arms(self.arms)
        paths = ", ".join(path for path in (self.path, *self.other_paths) if path)
        sentences = join_sentences(self.message, self.hint)
        return ": ".join(part for part in (location, arms, paths, sentences) if part)


def format_arms(titles: Sequence[str]) -> str:
    """Return the arms of an issue as text: "arm 'a'", "arms 'a' and 'b'", "arm 'a' and 2 more", or ""."""
    if len(titles) == 2:
        return f"arms {titles[0]!r} and {titles[1]!r}"
    more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
    return f"arm {titles[0]!r}{more}" if titles else ""


class HqltError(Exception):
    """Base class. The message is complete, so the command line prints it without a traceback."""


class IssueError(HqltError, ValueError):
    """Base class of errors that carry one or more issues. The text has one line per issue."""

    def __init__(self, *issues: ConfigIssue) -> None:
        if not all(isinstance(issue, ConfigIssue) for issue in issues):
            name = type(self).__name__
            raise TypeError(
                f"{name} takes a list of issues. For a single issue, raise {name}.at(path, code, message, hint)"
            )
        super().__init__(*issues)

    @property
    def issues(self) -> tuple[ConfigIssue, ...]:
        """The mistakes that the error reports."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(map(str, self.issues))

    @classmethod
    def at(cls, path: str, code: str, message: str, hint: str = "") -> Self:
        """Return an error with a single issue."""
        return cls(ConfigIssue(path, code, message, hint))

    def under(self, parent: str) -> Self:
        """Return an error of this type with the paths of all issues inside of `parent`."""
        return type(self)(*(issue.under(parent) for issue in self.issues))


class RegistryError(IssueError):
    """A component cannot be found or registered, or does not accept these options."""


class ConfigError(IssueError):
    """A setting is invalid, alone or in combination with others."""


class TrainingError(HqltError):
    """A run cannot continue."""


class StoreError(HqltError):
    """A study, a tracking store or prepared data cannot be read or written."""


def list_issues(error: HqltError) -> tuple[ConfigIssue, ...]:
    """Return the issues of an error. An error without issues, such as StoreError, becomes one issue without a path."""
    return error.issues if isinstance(error, IssueError) else (ConfigIssue("", "other_error", str(error)),)


@contextmanager
def issues_under(parent: str) -> Iterator[None]:
    """Prefix the paths of issues that are raised inside the `with` block."""
    try:
        yield
    except IssueError as error:
        raise error.under(parent) from error


def join_path(parent: str, path: str) -> str:
    """Return a path inside of another: model and heads give model.heads; mixer and [1] give mixer[1]."""
    separator = "." if parent and path and not path.startswith("[") else ""
    return f"{parent}{separator}{path}"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return "Did you mean '...'?" with the candidate closest to `name`, or "" if none is close."""
    nearest = get_close_matches(str(name), list(candidates), n=1, cutoff=0.5)
    return f"Did you mean '{nearest[0]}'?" if nearest else ""


def join_sentences(*sentences: str) -> str:
    """Return the sentences that are not empty, separated by spaces."""
    return " ".join(sentence for sentence in sentences if sentence)


def format_names(names: Iterable[str]) -> str:
    """Return the names as "a, b, c", or "none"."""
    return ", ".join(names) or "none"
