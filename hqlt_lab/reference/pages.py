"""Which page is which."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hqlt_lab.reference.command_line import command_line
from hqlt_lab.reference.experiment_file import experiment_file
from hqlt_lab.reference.python import python

PAGES: dict[str, Callable[[], str]] = {
    "experiment_file.md": experiment_file,
    "command_line.md": command_line,
    "python.md": python,
}


def write(folder: Path) -> Iterator[Path]:
    """All of them, into this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        yield folder / name
