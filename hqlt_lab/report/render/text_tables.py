"""Render tables as Markdown and as rich tables for the terminal. Markup in titles is escaped."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.render.reproduction import Reproduction, provenance_facts
from hqlt_lab.report.wording.answer import Answer

if TYPE_CHECKING:
    import rich.table

    from hqlt_lab.report.study_report import Report

WRAPPABLE_COLUMNS = (
    "verdict",
    "published",
    "chosen",
    "unfinished",
    "effect",
    "reference",
)
INTERVAL_COLUMN = "[95 % CI]"  # in a narrow terminal, the interval is on a second line of the cell
MIN_WRAPPED_WIDTH = 9  # characters of a column that may wrap
# columns that are dropped in a narrow terminal, in this order
OPTIONAL_COLUMNS = (
    "tokens/s", "FLOPs/token", "state", "parameters", "steps", "p (Fisher, solved)", "p (permutation)",
    "mean [95 % CI]", "best", "seeds", "published", "chosen", "solved",
)  # fmt: skip


def render_markdown(report: "Report", reproduction: Reproduction) -> str:
    """Render the question, the answer, the tables with their notes, the caveats, and how to reproduce the results."""
    table = report.build_table()
    blocks = [
        f"# {escape_markdown(report.experiment.question)}",
        *render_markdown_answer(report.answer),
        render_markdown_table(table),
        *map(escape_markdown, table.notes),
    ]
    for title, other in report.build_extra_tables().items():
        blocks += [f"## {title}", render_markdown_table(other), *map(escape_markdown, other.notes)]
    if report.warnings:
        blocks += ["## Caveats", render_markdown_list(report.warnings)]
    if reproduction.commands:
        facts = provenance_facts(report, reproduction.provenance or {})
        fact_lines = [f"{label}: {', '.join(text.splitlines())}" for label, text in facts]
        commands = "\n".join(f"    {command}" for command in reproduction.commands)
        blocks += ["## How to reproduce", commands, render_markdown_list(fact_lines)]
    return "\n\n".join(blocks) + "\n"


def render_markdown_answer(answer: Answer) -> list[str]:
    """Render the blocks of an answer: a sentence in bold, then the comparisons as a list."""
    blocks = [f"**{escape_markdown(answer.summary)}**", escape_markdown(answer.comparisons_heading)]
    return [block for block in [*blocks, render_markdown_list(answer.comparisons)] if block]


def render_markdown_list(items: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(item)}" for item in items)


def render_markdown_table(table: Table) -> str:
    """Render a table with the first column left-aligned and the others right-aligned."""
    rule = [":---", *["---:"] * (len(table.columns) - 1)]
    body = [[escape_markdown(cell) for cell in cells] for cells in [table.columns, *table.rows]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [body[0], rule, *body[1:]])


def escape_markdown(text: str) -> str:
    """Return text on one line, with characters escaped that end a cell or start markup."""
    return re.sub(r"([\\|<*])", r"\\\1", " ".join(text.split()))


def fit_to_width(table: Table, width: int) -> Table:
    """Break cells with intervals, then drop columns in the order of OPTIONAL_COLUMNS, until the table fits.

    A note names the dropped columns.
    """
    table = break_intervals(table, width)
    shown = list(range(len(table.columns)))
    widths = min_column_widths(table)
    for suffix in OPTIONAL_COLUMNS:
        while total_width([widths[number] for number in shown]) > width:
            if not (matching := [number for number in shown if table.columns[number].endswith(suffix)]):
                break
            shown.remove(matching[-1])
    dropped = [column for number, column in enumerate(table.columns) if number not in shown]
    note = f"Columns that do not fit: {', '.join(dropped)}. Use a wider terminal, --markdown or --html to see them."
    columns, rows = (
        [table.columns[number] for number in shown],
        [[row[number] for number in shown] for row in table.rows],
    )
    return Table(columns, rows, [*table.notes, note]) if dropped else table


def break_intervals(table: Table, width: int) -> Table:
    """Return the table with intervals on a second line of their cells, if it is too wide."""
    if total_width(min_column_widths(table)) <= width:
        return table
    rows = [
        [
            cell.replace(" [", "\n[") if column.endswith(INTERVAL_COLUMN) else cell
            for column, cell in zip(table.columns, cells, strict=True)
        ]
        for cells in table.rows
    ]
    return replace(table, rows=rows)


def total_width(widths: Sequence[int]) -> int:
    """Return the width of a printed table; columns are separated by one space, and one is at each end."""
    return sum(widths) + len(widths) + 1


def min_column_widths(table: Table) -> list[int]:
    return [
        min_column_width(column, [row[number] for row in table.rows]) for number, column in enumerate(table.columns)
    ]


def min_column_width(column: str, cells: Sequence[str]) -> int:
    """Return the minimum width of a column in characters; columns that may wrap need less."""
    heading, widest = longest_line(break_heading(column)), longest_line(*cells)
    if column.endswith(WRAPPABLE_COLUMNS):
        longest_word = max((len(word) for cell in cells for word in cell.split()), default=0)
        widest = min(widest, max(longest_word, MIN_WRAPPED_WIDTH))
    return max(heading, widest)


def break_heading(column: str) -> str:
    """Return a heading with line breaks between words: "paired", "difference", "[95 % CI]"; "median", "± MAD"."""
    return re.sub(r"(?<!±) (?![^\[]*\])", "\n", column)


def render_rich_table(title: str, table: Table) -> "rich.table.Table":
    """Build a rich table; cells are rich Text, so that brackets are not parsed as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    notes = Text("\n".join(table.notes))
    rich_table = RichTable(
        title=Text(title) if title else None, caption=notes, box=SIMPLE_HEAD, padding=0, pad_edge=False
    )
    rich_table.title_justify = rich_table.caption_justify = "left"
    for number, column in enumerate(table.columns):
        rich_table.add_column(
            Text(break_heading(column)),
            justify="right" if number else "left",
            no_wrap=not column.endswith(WRAPPABLE_COLUMNS),
            min_width=min_column_width(column, [row[number] for row in table.rows]),  # rich would truncate cells
        )
    for cells in table.rows:
        rich_table.add_row(*(Text(cell) for cell in cells))
    return rich_table


def longest_line(*texts: str) -> int:
    """Return the number of characters of the longest line."""
    return max((len(line) for text in texts for line in text.splitlines()), default=0)
