"""Results of the conformance checks of one component."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["passed", "failed", "illegal", "not applicable"]
OUTCOME_STYLES = {"passed": "green", "failed": "bold red", "illegal": "yellow", "not applicable": "dim"}


class CheckFailed(AssertionError):
    """The component fails a check; the message has the reason."""


class ComponentUnusable(CheckFailed):
    """The component fails a check in such a way that no further check makes sense."""


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check.

    "illegal" is a combination that the lab rejects with a reason, and "not applicable" a check that cannot be tried;
    they are not failures.
    """

    check: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class ConformanceReport:
    """Results of all checks of one component."""

    kind: str
    name: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[CheckResult]:
        return [result for result in self.results if result.outcome == "failed"]

    def assert_passed(self) -> None:
        """Raise AssertionError with the failed checks, for use in your own tests."""
        failures = "\n".join(f"  {result.check}: {detail}" for result, detail in deduplicate_details(self.failures))
        assert self.passed, f"{self.kind} {self.name!r} fails its checks:\n{failures}"

    def to_table(self) -> Any:
        """Return a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.kind} {self.name}", title_justify="left", box=None, show_header=False)
        for result, detail in deduplicate_details(self.results):
            table.add_row(result.check, Text(result.outcome, style=OUTCOME_STYLES[result.outcome]), Text(detail))
        return table

    def as_dict(self) -> dict[str, Any]:
        """Return the report for --json."""
        results = [
            {"check": result.check, "outcome": result.outcome, "detail": result.detail} for result in self.results
        ]
        return {"kind": self.kind, "name": self.name, "passed": self.passed, "results": results}

    def __str__(self) -> str:
        lines = (f"{result.outcome:8} {result.check}  {detail}" for result, detail in deduplicate_details(self.results))
        return "\n".join(map(str.rstrip, lines))


def deduplicate_details(results: Sequence[CheckResult]) -> Iterator[tuple[CheckResult, str]]:
    """Yield each result with its detail; a failure with the same detail as an earlier one refers to that check."""
    first_check_by_detail: dict[str, str] = {}
    for result in results:
        is_failure = result.outcome == "failed"
        first_check = first_check_by_detail.setdefault(result.detail, result.check) if is_failure else result.check
        yield result, result.detail if first_check == result.check else f"same reason as: {first_check}"
