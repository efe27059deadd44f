"""Render a report as a self-contained HTML page: no network, readable without scripts, in light, dark and print.

The template engine escapes all user text. Only the page's own style, script and SVG figures are inserted unescaped, and
a content security policy allows nothing else.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from hqlt_lab.formatting import pluralize_count
from hqlt_lab.hashing import digest_bytes
from hqlt_lab.report.build_tables import find_verdicts
from hqlt_lab.report.figures.drawn_arms import DrawnArms
from hqlt_lab.report.figures.report_figure import inline_svg
from hqlt_lab.report.render.reproduction import Reproduction, provenance_facts
from hqlt_lab.report.value_formatting import format_rounded

if TYPE_CHECKING:
    from jinja2 import Template

    from hqlt_lab.report.figures.draw_figures import FigureSet
    from hqlt_lab.report.study_report import Report


MAX_ROWS, MAX_CELLS = 200, 50
MAX_REASON_LENGTH = 300  # characters of a failure reason


@dataclass(frozen=True)
class PageTable:
    """A table with a note on omitted rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    omitted_note: str = ""
    verdicts: Sequence[Mapping[int, str]] = ()  # of each row: index of the column -> better, worse or not_significant


class PageSection(NamedTuple):
    """A section of the page: heading, HTML id, note and table."""

    title: str
    id: str
    note: str
    table: PageTable


def results_table(report: "Report") -> PageTable:
    """Return the results table; with more than MAX_ROWS rows, the baseline, the best arms and quoted results."""
    table = report.build_table()
    verdicts = find_verdicts(table, report.experiment, report.rows)
    if len(table.rows) <= MAX_ROWS:
        return PageTable(table.columns, table.rows, verdicts=verdicts)
    rank = DrawnArms(report.experiment, report.rows).sort_key
    arms = report.rows
    order = sorted(range(len(arms)), key=lambda index: (index > 0 and not arms[index].is_quoted, rank(arms[index])))
    shown = sorted(order[:MAX_ROWS])
    omitted = pluralize_count(len(table.rows) - len(shown), "row")
    note = f"Only the baseline and the best arms are shown; {omitted} omitted. The CSV file has all rows."
    return PageTable(
        table.columns, [table.rows[index] for index in shown], note, verdicts=[verdicts[index] for index in shown]
    )


def extra_sections(report: "Report") -> list[PageSection]:
    """Return the non-empty sections below the figures."""
    sections = [*extra_table_sections(report), hyperparameter_section(report), unfinished_section(report)]
    return [section for section in sections if section.table.rows]


def extra_table_sections(report: "Report") -> list[PageSection]:
    """Return a section for each extra table: effects and importance."""
    sections = []
    for title, table in report.build_extra_tables().items():
        omitted_note = describe_omitted(len(table.rows) - MAX_ROWS, "line")
        page_table = PageTable(table.columns, table.rows[:MAX_ROWS], omitted_note)
        sections.append(PageSection(title, title.lower().replace(" ", "-"), " ".join(table.notes), page_table))
    return sections


def hyperparameter_section(report: "Report") -> PageSection:
    """Return the section of selected hyperparameters, with the number of points and cells tried."""
    paths = list(report.experiment.tune)
    arms = [row for row in report.rows if row.point]
    rows = [
        [
            row.title,
            *(format_rounded(row.point.get(path)) for path in paths),
            str(row.points_tried),
            str(row.cells_tried),
        ]
        for row in arms[:MAX_ROWS]
        if row.point
    ]
    measure = report.experiment.measure
    note = f"Selected by the {measure.statistic} of {measure.select} over seeds, never by test results."
    omitted_note = describe_omitted(len(arms) - len(rows), "arm")
    table = PageTable(["arm", *paths, "points tried", "cells"], rows, omitted_note)
    return PageSection("Chosen hyperparameters", "chosen", note, table)


def unfinished_section(report: "Report") -> PageSection:
    """Return the section of cells without a result, with the reason and the command that shows the log."""
    cells = [record for record in report.records if record.state != "done"]
    cells.sort(key=lambda record: record.state in ("waiting", "running"))  # failures first
    rows = [
        [
            f"{record.arm}, seed {record.seed}",
            record.state,
            shorten(record.why, MAX_REASON_LENGTH, placeholder=" ..."),
            f"hqlt logs {record.key}",
        ]
        for record in cells[:MAX_CELLS]
    ]
    table = PageTable(["cell", "state", "reason", "log"], rows, describe_omitted(len(cells) - len(rows), "cell"))
    return PageSection("Cells without a result", "unfinished", "", table)


def describe_omitted(count: int, noun: str) -> str:
    return f"{pluralize_count(count, f'more {noun}')} not shown; the JSON file has all." if count > 0 else ""


def describe_progress(report: "Report") -> str:
    """Return e.g. "18 of 18 cells done"."""
    done = sum(record.state == "done" for record in report.records)
    return f"{done} of {pluralize_count(len(report.records), 'cell')} done"


TEMPLATES_DIR = Path(__file__).parent / "templates"
MAX_EMBEDDED_CHARS = 600_000  # limit for files embedded in the page
DOWNLOAD_FILES = {
    "report.csv": ("text/csv", "all numbers in full precision, one line per arm and metric"),
    "report.md": ("text/markdown", "the answer and the tables as Markdown"),
    "report.tex": ("application/x-tex", "the results table for a paper"),
    "report.json": ("application/json", "the whole report, for programs"),
}


class Download(NamedTuple):
    """A file listed on the page, with a data URL if it is embedded."""

    name: str
    description: str
    link: str | None


def render_page(report: "Report", figure_set: "FigureSet", files: Mapping[str, str], reproduction: Reproduction) -> str:
    """Render the page; `files` are offered for download, by name."""
    from markupsafe import Markup

    script = (TEMPLATES_DIR / "page.js").read_text()
    digest = base64.b64encode(digest_bytes(script.encode())).decode()
    figures = [
        {
            "name": figure.name,
            "title": figure.title,
            "caption": figure.caption,
            "svg": Markup(inline_svg(figure_set.svgs[figure.name])),
        }
        for figure in figure_set.figures
    ]
    return load_template("page.html").render(
        question=" ".join(report.experiment.question.split()),
        name=report.experiment.name,
        progress=describe_progress(report),
        answer=report.answer,
        warnings=[*report.warnings, *figure_set.errors],
        table=results_table(report),
        notes=report.build_table().notes,
        figures=figures,
        extra=extra_sections(report),
        commands=reproduction.commands,
        facts=provenance_facts(report, reproduction.provenance or {}),
        files=build_downloads(files),
        style=Markup((TEMPLATES_DIR / "page.css").read_text()),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def render_fragment(report: "Report", remarks: Sequence[str]) -> str:
    """Render a report without figures as HTML for the output of a notebook; `remarks` follow its warnings."""
    table = results_table(report)
    omitted = [table.omitted_note] if table.omitted_note else []
    return load_template("notebook.html").render(
        question=" ".join(report.experiment.question.split()),
        name=report.experiment.name,
        progress=describe_progress(report),
        answer=report.answer,
        warnings=[*report.warnings, *remarks],
        table=table,
        notes=[*omitted, *report.build_table().notes],
        extra=extra_sections(report),
    )


@cache
def load_template(name: str) -> "Template":
    """Load a template with autoescaping; undefined names raise an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(TEMPLATES_DIR), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(name)


def build_downloads(files: Mapping[str, str]) -> list[Download]:
    """Return all downloads; smaller files are embedded first, until MAX_EMBEDDED_CHARS is used up."""
    downloads, remaining_chars = [], MAX_EMBEDDED_CHARS
    for name, text in sorted(files.items(), key=lambda file: len(file[1])):
        mime_type, description = DOWNLOAD_FILES[name]
        data = base64.b64encode(text.encode()).decode()
        remaining_chars -= len(data)
        link = f"data:{mime_type};charset=utf-8;base64,{data}" if remaining_chars > 0 else None
        downloads.append(Download(name, description, link))
    return sorted(downloads, key=lambda file: list(DOWNLOAD_FILES).index(file.name))
