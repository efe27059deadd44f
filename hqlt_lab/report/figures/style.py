"""One look for every figure: readable at half a page's width, by people who see colours differently, in the dark.

The colours are those of Okabe and Ito (2008), without their yellow, which white paper swallows.  The first is the ink
itself.  INK and PAPER are colours that nothing else has: a page replaces them by its own.
"""

import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, PAPER, FAINT = "#1b1f24", "#fefffe", "#8b929a"
BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
COLOURS = (INK, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vPX"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
WIDTH = 5.2  # inches, with letters of 10 points: 6.5 of them are left at half a page's width

SETTINGS: Any = {
    "font.size": 10,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a title is one
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "hatch.color": FAINT,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",  # letters stay letters: found by a search, read aloud
    "svg.hashsalt": "hqlt_lab",  # the same figure is the same file
}
ONE_AT_A_TIME = threading.RLock()  # matplotlib's settings belong to the whole process


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in here."""
    with ONE_AT_A_TIME, quietly_imported() as matplotlib, matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # a letter that our font lacks: the reader's may have it
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


@contextmanager
def quietly_imported() -> Iterator[Any]:
    """matplotlib, that does not say that a closed home costs it a cache: no figure lacks anything."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(max(level, logging.ERROR))
    try:
        import matplotlib

        yield matplotlib
    finally:
        log.setLevel(level)


def sheet(height: float, rows: int = 1, columns: int = 1, **shared: Any) -> "tuple[Figure, list[Axes]]":
    """An empty figure of the common width, and its panels from left to right, from top to bottom."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(panels.flat)


def legend(figure: "Figure", axes: "Axes") -> None:
    """Below the panels, in as many columns as the names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    longest = max(map(len, names), default=0)
    columns = max(1, min(len(names), int(74 / (longest + 7))))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, handlelength=2.4, columnspacing=1.4)


def brief(title: str) -> str:
    """delta, timing=synchronous, mixer=sum -> delta · synchronous · sum: the table has the names of the axes."""
    return re.sub(r", [\w.]+=", " · ", title)


def cut(text: str, most: int = 44) -> str:
    """On one line, and not longer than a figure is wide; the end says more than the middle."""
    text = brief(" ".join("".join(letter if letter.isprintable() else " " for letter in text).split()))
    text = text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2 - 3) :]}"
    return f" {text}" if text.startswith("_") else text  # matplotlib leaves such a name out of legends
