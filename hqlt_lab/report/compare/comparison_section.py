"""One section of a comparison: sentences, a table, and entries for JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.report.build_tables import Table

EMPTY_CELL = "-"


@dataclass(frozen=True, kw_only=True)
class ComparisonSection:
    """Content of one section in three forms; `table` is None without rows."""

    name: str  # settings, code, results, published
    sentences: Sequence[str] = ()
    table: Table | None = None
    entries: Sequence[dict[str, Any]] = field(default_factory=list)
