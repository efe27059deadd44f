"""One page of HTML that needs nothing else: no network, no script to be read, light and dark, on paper too.

What the user wrote is escaped by the template engine; only our own style, script and drawings are taken as they are,
and a content security policy allows nothing besides them.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.report.figures.picture import inline
from hqlt_lab.report.sections import facts_of, further, progress, results

if TYPE_CHECKING:
    from jinja2 import Template

    from hqlt_lab.report.figures.draw import Drawn
    from hqlt_lab.report.report import Report

TEMPLATES = Path(__file__).parent / "templates"
VERDICT = re.compile(r"\b(better|worse|undecided)\b")
ROOM = 600_000  # characters for the files within the page
FILES = {
    "report.csv": ("text/csv", "every number in full precision, a line per arm and metric"),
    "report.md": ("text/markdown", "the table and the answer as Markdown"),
    "report.tex": ("application/x-tex", "the table for a paper"),
    "report.json": ("application/json", "everything, for programs"),
}


@dataclass(frozen=True)
class Making:
    """How the results can be made again, as far as the caller knows."""

    commands: Sequence[str] = ()
    provenance: Mapping[str, Any] | None = None  # git, versions, machine, command


class File(NamedTuple):
    """A file to download, or only to name."""

    name: str
    what: str
    link: str | None


def page(report: "Report", drawn: "Drawn", files: Mapping[str, str], making: Making) -> str:
    """All of it; `files` are what the page offers to download."""
    from markupsafe import Markup

    script = (TEMPLATES / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    figures = [
        {"name": one.name, "title": one.title, "caption": one.caption, "svg": Markup(inline(drawn.svgs[one.name]))}
        for one in drawn.pictures
    ]
    return template().render(
        question=" ".join(report.experiment.question.split()),
        name=report.experiment.name,
        progress=progress(report),
        answer=report.answer,
        warnings=[*report.warnings, *drawn.troubles],
        table=results(report),
        notes=report.table().notes,
        figures=figures,
        extra=further(report),
        commands=making.commands,
        facts=facts_of(report, making.provenance or {}),
        files=downloads(files),
        style=Markup((TEMPLATES / "page.css").read_text()),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


@cache
def template() -> "Template":
    """Escapes whatever it is given; a name that it lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    house = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    house.filters["pieces"] = pieces
    return house.get_template("page.html")


def pieces(cell: str) -> list[tuple[str, str]]:
    """A cell's text, its verdict apart: [("-3.1 ", ""), ("worse", "worse")]"""
    return [(text, text if VERDICT.fullmatch(text) else "") for text in VERDICT.split(cell) if text]


def downloads(files: Mapping[str, str]) -> list[File]:
    """Within the page as long as there is room."""
    found, room = [], ROOM
    for name, text in sorted(files.items(), key=lambda file: len(file[1])):
        kind, what = FILES[name]
        data = base64.b64encode(text.encode()).decode()
        room -= len(data)
        found.append(File(name, what, f"data:{kind};charset=utf-8;base64,{data}" if room > 0 else None))
    return sorted(found, key=lambda file: list(FILES).index(file.name))
