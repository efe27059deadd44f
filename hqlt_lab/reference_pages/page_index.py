"""The reference pages by file name."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hqlt_lab.reference_pages.command_line import command_line_page
from hqlt_lab.reference_pages.experiment_file import experiment_file_page
from hqlt_lab.reference_pages.python_api import python_api_page

PAGES: dict[str, Callable[[], str]] = {
    "experiment_file.md": experiment_file_page,
    "command_line.md": command_line_page,
    "python.md": python_api_page,
}


def write_pages(folder: Path) -> Iterator[Path]:
    """Write all pages into a folder; yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())
        yield folder / name
