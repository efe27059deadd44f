"""A figure with title and caption, rendered as SVG and PNG. Output is deterministic: no dates, no random ids."""

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hqlt_lab.report.figures.style import BACKGROUND, FOREGROUND, style_context

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 150


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A matplotlib figure with file name, title and caption."""

    name: str  # file name without suffix
    title: str
    caption: str  # how to read the figure, and what it omits
    figure: "Figure"

    def to_svg(self) -> str:
        """Render as SVG, without date and creator in the metadata."""
        metadata = {
            "Title": f"{self.title}. {self.caption}",
            "Date": None,
            "Creator": None,
            "Format": None,
            "Type": None,
        }
        buffer = io.StringIO()
        with style_context():
            self.figure.savefig(buffer, format="svg", metadata=metadata)
        return buffer.getvalue()

    def to_png(self) -> bytes:
        buffer = io.BytesIO()
        with style_context():
            self.figure.savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return buffer.getvalue()


def inline_svg(svg: str) -> str:
    """Prepare an SVG for embedding in HTML: the page's foreground and background colors, no group ids, smaller."""
    drawing = svg[svg.index("<svg") :].replace(FOREGROUND, "currentColor").replace(BACKGROUND, "none")
    drawing = re.sub(r"<g id=\"[^\"]*\"", "<g", drawing)
    drawing = re.sub(r" (width|height)=\"[\d.]+pt\"", "", drawing, count=2)
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", drawing, flags=re.DOTALL)  # repeats the title
    drawing = re.sub(r" (?:d|x|y)=\"[^\"]*\"", round_coordinates, drawing)
    return drawing.replace("<svg ", '<svg role="img" ', 1)


def round_coordinates(attribute: re.Match[str]) -> str:
    """Truncate coordinates to 0.01 points, which is not visible and makes pages 20 % smaller."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0]).replace("\n", "")
