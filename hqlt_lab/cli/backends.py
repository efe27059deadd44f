"""hqlt check backends: the matrix backend × rule × timing, with the error of each cell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.exits import NotAllWell
from hqlt_lab.cli.screen import aside, console
from hqlt_lab.registry import available
from hqlt_lab.words import in_json

if TYPE_CHECKING:
    from hqlt_lab.check.backends import Compared


def check_backends(backend: str | None, as_json: bool) -> None:
    """Compare every backend with the truth."""
    from hqlt_lab.check.backends import matrix

    done: list[Compared] = []
    with aside.status("comparing backends ...") as status:
        for cell in matrix(backend):
            done.append(cell)
            status.update(f"{cell.backend} {cell.precision} {cell.rule} {cell.timing}: {told(cell)}")
    print(in_json(done)) if as_json else console.print(table(done))
    if failed := [cell for cell in done if cell.outcome == "failed"]:
        names = "; ".join(
            f"{cell.backend} {cell.precision} {cell.rule} {cell.timing}, {cell.detail}" for cell in failed
        )
        raise NotAllWell(f"These do not give what the truth gives: {names}.")


def table(cells: Iterable["Compared"]) -> Table:
    """A row per backend, precision and rule; a column per timing."""
    timings = available("timing")
    made = Table("backend", "precision", "update_rule", *timings, box=None, pad_edge=False, title_justify="left")
    made.caption = "Largest deviation from the truth, of answers, states and gradients, over the largest number."
    rows: dict[tuple[str, str, str], dict[str, Text]] = {}
    for cell in cells:
        style = {"passed": "green", "failed": "bold red", "not here": "dim"}[cell.outcome]
        row = rows.setdefault((cell.backend, cell.precision, cell.rule or "softmax"), {})
        row[cell.timing] = Text(told(cell), style=style)
    for names, row in rows.items():
        made.add_row(*names, *(row[timing] for timing in timings))
    return made


def told(cell: "Compared") -> str:
    if cell.error is None:
        return cell.detail
    note = f", {cell.detail}" if cell.outcome == "failed" or cell.detail == "without gradients" else ""
    return f"{cell.error:.0e}{note}"
