"""Write a report to disk: text files, the HTML page, and each figure as SVG and PNG. Remove outdated figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.files import write_atomic

if TYPE_CHECKING:
    from hqlt_lab.report.figures.draw_figures import FigureSet

FIGURES_DIR = "figures"


@dataclass(frozen=True)
class SavedReport:
    """Paths of the written files, and error messages of figures that failed."""

    files: list[Path]  # includes the folder of figures
    figure_errors: list[str]


def write_report(folder: Path, texts: Mapping[str, str], figure_set: "FigureSet") -> SavedReport:
    """Write all files of a report. Each file is replaced atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomic(folder / name, text)
    files = [folder / name for name in texts]
    return SavedReport([*files, *write_figures(folder / FIGURES_DIR, figure_set)], figure_set.errors)


def write_figures(folder: Path, figure_set: "FigureSet") -> list[Path]:
    """Write the figures and remove those of an earlier report; returns [folder], or [] without figures."""
    from hqlt_lab.report.figures.draw_figures import FIGURE_NAMES

    contents: dict[str, str | bytes] = {f"{name}.svg": svg for name, svg in figure_set.svgs.items()}
    contents |= {f"{figure.name}.png": figure.to_png() for figure in figure_set.figures}
    for name in [f"{name}.{suffix}" for name in FIGURE_NAMES for suffix in ("svg", "png")]:
        if name not in contents:
            (folder / name).unlink(missing_ok=True)
    if not contents:
        return []
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        write_atomic(folder / name, content)
    return [folder]
