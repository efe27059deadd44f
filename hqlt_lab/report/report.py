"""All that a study says: rows, doubts, and the answer; made from records, written as files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.answer import answer
from hqlt_lab.report.lines import csv_of
from hqlt_lab.report.render import markdown, terminal
from hqlt_lab.report.rows import Row, rows_of
from hqlt_lab.report.table import Table, table_of
from hqlt_lab.report.warnings import warnings_of
from hqlt_lab.study.record import Record
from hqlt_lab.train.files import write

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True, kw_only=True)
class Report:
    """An experiment and what is known so far."""

    experiment: Experiment
    rows: Sequence[Row]
    warnings: Sequence[str]
    answer: str

    @classmethod
    def make(cls, experiment: Experiment, records: Sequence[Record]) -> "Report":
        """From every cell of the plan in its present state."""
        rows = rows_of(experiment, records)
        return cls(
            experiment=experiment,
            rows=rows,
            warnings=warnings_of(experiment, rows, records),
            answer=answer(experiment, rows, records),
        )

    def table(self) -> Table:
        return table_of(self.experiment, self.rows)

    def markdown(self) -> str:
        return markdown(self.experiment.question, self.table(), self.answer, self.warnings)

    def csv(self) -> str:
        return csv_of(self.experiment, self.rows)

    def terminal(self) -> "rich.table.Table":
        return terminal(self.experiment.question, self.table())

    def save(self, folder: Path) -> None:
        """Write report.md and report.csv; a reader sees the old ones or the new ones."""
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "report.md", self.markdown())
        write(folder / "report.csv", self.csv())
