"""What a program elsewhere has to be told, so that it joins a study."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Errand:
    """`hqlt worker` with these words, in the folder where we are, trains the same cells."""

    file: Path  # the experiment
    change: tuple[str, ...]  # --set
    only: tuple[str, ...]  # --only
    runs: Path  # --runs
    folder: Path  # of the study
    shared: bool  # whether others may write into its ledger
    tell: Callable[[str], None]  # a sentence, to whoever watches
    limit: int | None = None  # --limit
    environment: Mapping[str, str] = field(default_factory=dict)  # beyond what it inherits
