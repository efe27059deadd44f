"""Collect all issues of an experiment file, with their lines, and report them in one error.

An issue that all arms have is reported once; an issue of some arms with their titles.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import ConfigError, ConfigIssue, HqltError, list_issues
from hqlt_lab.experiment.yaml.source_map import SourceMap

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Arm

Result = TypeVar("Result")


class ExperimentError(ConfigError):
    """The issues of an experiment file. The text names the file once, and sorts the issues by line."""

    file: str = ""

    def __str__(self) -> str:
        return format_issues(self.file, self.issues)


class IssueCollector:
    """Collects issues and warnings about a file. `raise_issues` raises all issues in one ExperimentError."""

    def __init__(self, file: Path, source_map: SourceMap) -> None:
        self.file, self.source_map = str(file), source_map
        self.issues: list[ConfigIssue] = []
        self.warnings: list[ConfigIssue] = []

    def add(self, *issues: ConfigIssue) -> None:
        """Add issues that do not belong to particular arms."""
        for issue in issues:
            self._append(self.source_map.locate(issue))

    def add_arm_issue(self, issue: ConfigIssue, arms: "Sequence[Arm]", in_all_arms: bool) -> None:
        """Add an issue of these arms."""
        self._append(self._locate_in_arms(issue, arms, in_all_arms))

    def add_arm_warning(self, warning: ConfigIssue, arms: "Sequence[Arm]", in_all_arms: bool) -> None:
        """Add a warning about these arms. Warnings do not raise an error."""
        self.warnings.append(self._locate_in_arms(warning, arms, in_all_arms))

    def _locate_in_arms(self, issue: ConfigIssue, arms: "Sequence[Arm]", in_all_arms: bool) -> ConfigIssue:
        located = self.source_map.locate(issue, arms[0])
        names_arm = section_of(issue) == "arms"
        return located if in_all_arms or names_arm else replace(located, arms=tuple(arm.title for arm in arms))

    def _append(self, issue: ConfigIssue) -> None:
        if issue not in self.issues:
            self.issues.append(issue)

    def raise_issues(self) -> None:
        """Raise ExperimentError with all issues, if there are any."""
        if self.issues:
            error = ExperimentError(*sorted(self.issues, key=self._sort_key))
            error.file = self.file
            raise error

    def _sort_key(self, issue: ConfigIssue) -> tuple[int, int]:
        """Sort issues of the file and of missing sections first, then by line, then of extended files, then of --set.

        Issues of default values, which are written nowhere, come last: a setting in the file may be their cause.
        """
        if not issue.source:
            return (4, 0) if "." in issue.path else (0, 0)
        return (3, 0) if issue.line is None else (1 if issue.source == self.file else 2, issue.line)

    def format_warnings(self) -> tuple[str, ...]:
        """Return each warning as text."""
        return tuple(format_issues(self.file, [warning]) for warning in self.warnings)

    def call_and_collect(self, function: Callable[..., Result], *arguments: Any) -> Result | None:
        """Return the result of the function. If it raises HqltError, add its issues and return None."""
        try:
            return function(*arguments)
        except HqltError as error:
            self.add(*list_issues(error))
            return None

    def passes_check(self, check: Callable[..., Any], *arguments: Any) -> bool:
        """Run a check and return whether it added no issue."""
        count_before = len(self.issues)
        self.call_and_collect(check, *arguments)
        return len(self.issues) == count_before

    def has_issue_in(self, *sections: str) -> bool:
        """Return whether any issue is about one of these sections."""
        return any(section_of(issue) in sections for issue in self.issues)


def section_of(issue: ConfigIssue) -> str:
    """Return the section of the file that an issue is about, which is the first key of its path."""
    return issue.path.partition(".")[0]


def format_issues(file: str, issues: Sequence[ConfigIssue]) -> str:
    """Return the issues of a file as text: one issue in one line, several with one line each below the file."""
    name = file if file.isprintable() else repr(file)
    if len(issues) == 1:
        (issue,) = issues
        return str(issue) if issue.source == file else f"{name}: {issue}"
    lines = [issue.format(f"line {issue.line}" if issue.source == file else issue.location) for issue in issues]
    return "\n  ".join([f"{name}:", *lines])
