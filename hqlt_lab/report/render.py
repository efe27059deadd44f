"""A table as Markdown and in the terminal.  Titles are the user's: whatever they hold is shown, not obeyed."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hqlt_lab.report.table import Table

if TYPE_CHECKING:
    import rich.table

LONG = ("mean [95 %]", "difference [95 %]", "verdict", "published", "chosen", "unfinished", "effect", "against")
LEAST = 9  # letters of a column that may be broken
# what a narrow terminal does without, in this order
EXPENDABLE = (
    "tokens/s", "FLOPs/token", "state", "parameters", "steps", "p (solved)", "p (signs)", "mean [95 %]", "best",
    "seeds", "published", "chosen", "solved",
)  # fmt: skip


def markdown(question: str, table: Table, answer: str, warnings: Sequence[str], more: Mapping[str, Table]) -> str:
    """The question, the table, the answer, what else there is to know, and the doubts."""
    pieces = [f"# {escaped(question)}", markdown_table(table), *map(escaped, table.notes), f"**{escaped(answer)}**"]
    for title, other in more.items():
        pieces += [f"## {title}", markdown_table(other), *map(escaped, other.notes)]
    if warnings:
        pieces += ["## Warnings", "\n".join(f"- {escaped(warning)}" for warning in warnings)]
    return "\n\n".join(pieces) + "\n"


def markdown_table(table: Table) -> str:
    """Names to the left, numbers to the right."""
    rule = [":---", *["---:"] * (len(table.columns) - 1)]
    body = [[escaped(cell) for cell in cells] for cells in [table.columns, *table.rows]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [body[0], rule, *body[1:]])


def escaped(text: str) -> str:
    """On one line, with no character that ends a cell or starts markup."""
    return re.sub(r"([\\|<*])", r"\\\1", " ".join(text.split()))


def fitted(table: Table, width: int) -> Table:
    """Without columns that there is no room for, the least missed first, and a note that says which."""
    kept = list(range(len(table.columns)))
    needs = [least_width(column, [row[number] for row in table.rows]) for number, column in enumerate(table.columns)]
    for word in EXPENDABLE:
        while sum(needs[number] for number in kept) + len(kept) + 1 > width:
            if not (missed := [number for number in kept if table.columns[number].endswith(word)]):
                break
            kept.remove(missed[-1])
    left_out = [column for number, column in enumerate(table.columns) if number not in kept]
    note = f"No room for {', '.join(left_out)}: a wider terminal has them, and --markdown or --html."
    columns, rows = [table.columns[number] for number in kept], [[row[n] for n in kept] for row in table.rows]
    return Table(columns, rows, [*table.notes, note]) if left_out else table


def least_width(column: str, cells: Sequence[str]) -> int:
    """Letters that a column needs; one that may be broken into lines needs few."""
    head, widest = longest(column.replace(" ", "\n", 1)), longest(*cells)
    return max(head, min(widest, LEAST) if column.endswith(LONG) else widest)


def terminal(question: str, table: Table) -> "rich.table.Table":
    """For rich's console; Text instead of strings, in which [ ] would be markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    notes = Text("\n".join(table.notes))
    made = RichTable(title=Text(question), caption=notes, box=SIMPLE_HEAD, padding=0, pad_edge=False)
    made.title_justify = made.caption_justify = "left"
    for number, column in enumerate(table.columns):
        made.add_column(
            Text(column.replace(" ", "\n", 1)),
            justify="right" if number else "left",
            no_wrap=not column.endswith(LONG),
            min_width=least_width(column, [row[number] for row in table.rows]),  # rich would cut a cell, not widen
        )
    for cells in table.rows:
        made.add_row(*(Text(cell) for cell in cells))
    return made


def longest(*texts: str) -> int:
    """Letters in the longest line."""
    return max((len(line) for text in texts for line in text.splitlines()), default=0)
