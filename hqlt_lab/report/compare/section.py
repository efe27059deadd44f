"""One part of a comparison: what it says in sentences, as a table, and to programs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.report.table import Table

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Section:
    """Told three ways; the table is left out where it has no rows."""

    name: str  # settings, code, results, published
    said: Sequence[str] = ()
    table: Table | None = None
    entries: Sequence[dict[str, Any]] = field(default_factory=list)
