"""A report on disk: texts, the page, and each figure as SVG and PNG.  What was there before and is no longer, goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.files import write

if TYPE_CHECKING:
    from hqlt_lab.report.figures.draw import Drawn

FIGURES = "figures"


@dataclass(frozen=True)
class Saved:
    """What was written, and what could not be drawn."""

    files: list[Path]  # the folder of the figures among them
    troubles: list[str]


def save(folder: Path, texts: Mapping[str, str], drawn: "Drawn") -> Saved:
    """Each file at once: a reader sees the old one or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write(folder / name, text)
    files = [folder / name for name in texts]
    return Saved([*files, *save_figures(folder / FIGURES, drawn)], drawn.troubles)


def save_figures(folder: Path, drawn: "Drawn") -> list[Path]:
    """The folder, if there is anything in it."""
    from hqlt_lab.report.figures.draw import NAMES

    made: dict[str, str | bytes] = {f"{name}.svg": svg for name, svg in drawn.svgs.items()}
    made |= {f"{picture.name}.png": picture.png() for picture in drawn.pictures}
    for name in [f"{name}.{kind}" for name in NAMES for kind in ("svg", "png")]:
        if name not in made:
            (folder / name).unlink(missing_ok=True)
    if not made:
        return []
    folder.mkdir(exist_ok=True)
    for name, content in made.items():
        write(folder / name, content)
    return [folder]
