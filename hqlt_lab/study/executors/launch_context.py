"""Information that a launcher needs to start `hqlt worker` processes on other machines that join a study."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class LaunchContext:
    """Study, options and environment of the `hqlt worker` processes that a launcher starts."""

    file: Path  # the experiment
    overrides: tuple[str, ...]  # --set
    only: tuple[str, ...]  # --only
    runs: Path  # --runs
    study_folder: Path
    is_shared: bool  # whether several processes may write the ledger
    limit: int | None = None  # --limit
    env: Mapping[str, str] = field(default_factory=dict)  # set in addition to the inherited environment
