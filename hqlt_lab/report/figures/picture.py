"""A figure with what a reader needs beside it; as SVG, the same bytes for the same figure, and as PNG."""

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hqlt_lab.report.figures.style import INK, PAPER, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure."""

    name: str  # of its file
    title: str
    caption: str  # how to read it, and what was left out
    figure: "Figure"

    def svg(self) -> str:
        """A file that names no date and no program."""
        told = {"Title": f"{self.title}. {self.caption}", "Date": None, "Creator": None, "Format": None, "Type": None}
        made = io.StringIO()
        with styled():
            self.figure.savefig(made, format="svg", metadata=told)
        return made.getvalue()

    def png(self) -> bytes:
        made = io.BytesIO()
        with styled():
            self.figure.savefig(made, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        return made.getvalue()


def inline(svg: str) -> str:
    """The same for a page of HTML: in the page's own ink, on its own paper, with no name that another figure has."""
    drawing = svg[svg.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "none")
    drawing = re.sub(r"<g id=\"[^\"]*\"", "<g", drawing)
    drawing = re.sub(r" (width|height)=\"[\d.]+pt\"", "", drawing, count=2)
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", drawing, flags=re.DOTALL)  # the title says the same
    drawing = re.sub(r" (?:d|x|y)=\"[^\"]*\"", rounded, drawing)
    return drawing.replace("<svg ", '<svg role="img" ', 1)


def rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a hundredth of a point, which nobody sees: pages are a fifth smaller."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0]).replace("\n", "")
