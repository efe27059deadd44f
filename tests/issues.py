"""Assertions about errors that carry issues: tests compare path and code, and the golden file holds the wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hqlt_lab.errors import IssueError


@contextmanager
def raises_issue(
    path: str, code: str, error_type: type[IssueError] = IssueError
) -> Iterator[pytest.ExceptionInfo[IssueError]]:
    """Expect an error with an issue of this path and code, among others or alone."""
    with pytest.raises(error_type) as error:
        yield error
    assert (path, code) in list_codes(error.value)


def list_codes(error: IssueError) -> list[tuple[str, str]]:
    """Return path and code of each issue."""
    return [(issue.path, issue.code) for issue in error.issues]
