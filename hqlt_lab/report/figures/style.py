"""Common style of all figures: readable at half the page width, with color vision deficiency, and in dark mode.

Colors are from the palette of Okabe and Ito (2008), without yellow, which is hard to see on white. The first color is
the foreground. FOREGROUND and BACKGROUND are distinct from all others, so an HTML page can replace them with its own.
"""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.arm_title import ArmTitle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOREGROUND, BACKGROUND, MUTED = "#1b1f24", "#fefffe", "#8b929a"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
PALETTE = (FOREGROUND, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vPX"
LINE_STYLES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
FIGURE_WIDTH = 5.2  # inches; at half the page width, fonts of 10 points shrink to 6.5 points

RC_PARAMS: Any = {
    "font.size": 10,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": FOREGROUND,
    "text.parse_math": False,  # show dollar signs in titles literally
    "axes.edgecolor": MUTED,
    "axes.labelcolor": FOREGROUND,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": BACKGROUND,
    "xtick.color": FOREGROUND,
    "ytick.color": FOREGROUND,
    "grid.color": MUTED,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "hatch.color": MUTED,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",  # keep text as text: searchable and accessible
    "svg.hashsalt": "hqlt_lab",  # deterministic ids
}
RC_LOCK = threading.RLock()  # rcParams are global to the process


@contextmanager
def style_context() -> Iterator[None]:
    """Apply the common style while figures are drawn and saved. Holds a lock, so that threads do not interfere."""
    with (
        RC_LOCK,
        import_matplotlib_quietly() as matplotlib,
        matplotlib.rc_context(RC_PARAMS),
        warnings.catch_warnings(),
    ):
        # SVG text is rendered with the reader's fonts, which may have the glyph
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


@contextmanager
def import_matplotlib_quietly() -> Iterator[Any]:
    """Import matplotlib without its warning that the cache folder is not writable."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(max(level, logging.ERROR))
    try:
        import matplotlib

        yield matplotlib
    finally:
        log.setLevel(level)


def create_figure(
    height: float, rows: int = 1, columns: int = 1, **subplot_options: Any
) -> "tuple[Figure, list[Axes]]":
    """Create an empty figure of the common width; returns it with its panels in row-major order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **subplot_options)
    return figure, list(panels.flat)


def add_legend(figure: "Figure", axes: "Axes") -> None:
    """Add a legend below the panels, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = max(1, min(len(labels), int(74 / (longest + 7))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.4, columnspacing=1.4)


def title_parts(title: ArmTitle) -> list[str]:
    """Return the name of an arm and the values of its levels, without their paths: ["delta", "synchronous", "sum"]."""
    return [title.name, *title.level_values]


def truncate_title(title: ArmTitle, max_length: int = 44) -> str:
    """Return a title on one line, such as "delta · synchronous · sum"; a long one is cut in the middle."""
    return truncate_label(" · ".join(title_parts(title)), max_length)


def truncate_label(text: str, max_length: int = 44) -> str:
    """Return a text on one line; a long one is cut in the middle."""
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    text = text if len(text) <= max_length else f"{text[: max_length // 2]} … {text[-(max_length // 2 - 3) :]}"
    return (
        f" {text}" if text.startswith("_") else text
    )  # matplotlib omits labels with a leading underscore from legends
