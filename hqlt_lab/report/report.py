"""All that a study says: rows, doubts, and the answer; made from records, written as files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.report.answer import answer
from hqlt_lab.report.as_json import as_json
from hqlt_lab.report.effects import Effect, effects_of
from hqlt_lab.report.importance import importance_of
from hqlt_lab.report.latex import latex
from hqlt_lab.report.lines import csv_of
from hqlt_lab.report.more_tables import effects_table, importance_table
from hqlt_lab.report.page import Making, page
from hqlt_lab.report.render import fitted, markdown, terminal
from hqlt_lab.report.rows import Row, reported, rows_of
from hqlt_lab.report.saved import Saved, save
from hqlt_lab.report.table import Table, table_of
from hqlt_lab.report.verdict import verdict
from hqlt_lab.report.warnings import warnings_of
from hqlt_lab.study.record import Record

if TYPE_CHECKING:
    import rich.table
    from matplotlib.figure import Figure

    from hqlt_lab.report.figures.draw import Drawn

UNKNOWN = Making()


@dataclass(frozen=True, kw_only=True)
class Report:
    """An experiment and what is known so far."""

    experiment: Experiment
    records: Sequence[Record]  # every cell of the plan
    rows: Sequence[Row]
    effects: Sequence[Effect]  # of a grid, main effects first
    warnings: Sequence[str]
    answer: str
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # where it is asked for

    @classmethod
    def make(cls, experiment: Experiment, records: Sequence[Record]) -> "Report":
        """From every cell of the plan in its present state."""
        rows = rows_of(experiment, records)
        return cls(
            experiment=experiment,
            records=records,
            rows=rows,
            effects=effects_of(experiment, rows),
            warnings=warnings_of(experiment, rows, records),
            answer=f"{answer(experiment, rows, records)} {verdict(rows, experiment.measure)}".strip(),
        )

    def table(self) -> Table:
        return table_of(self.experiment, self.rows)

    def more_tables(self) -> dict[str, Table]:
        """By their heading, those that have anything to say."""
        measure, made = self.experiment.measure, {}
        if self.effects:
            made["Effects"] = effects_table(self.effects, reported(measure)[0])
        if self.importance:
            made["Importance"] = importance_table(self.importance, measure.select)
        return made

    def with_importance(self) -> "Report":
        """The same, and which hyper-parameter explains how much: some seconds of work."""
        return replace(self, importance=importance_of(self.experiment, self.records))

    def markdown(self) -> str:
        return markdown(self.experiment.question, self.table(), self.answer, self.warnings, self.more_tables())

    def csv(self) -> str:
        return csv_of(self.experiment, self.rows)

    def terminal(self, width: int) -> "list[rich.table.Table]":
        tables = {self.experiment.question: fitted(self.table(), width)} | self.more_tables()
        return [terminal(title, table) for title, table in tables.items()]

    def latex(self) -> str:
        return latex(self.experiment, self.rows, self.table().notes)

    def json(self) -> str:
        return as_json(self)

    @cached_property
    def drawn(self) -> "Drawn":
        """The figures, and why some could not be drawn; some seconds of work, once."""
        from hqlt_lab.report.figures.draw import draw

        return draw(self.experiment, self.rows)

    def figures(self) -> "dict[str, Figure]":
        """matplotlib's figures by name, to change and to save as wished."""
        return {picture.name: picture.figure for picture in self.drawn.pictures}

    def texts(self) -> dict[str, str]:
        """The files without figures."""
        return {
            "report.md": self.markdown(),
            "report.csv": self.csv(),
            "report.tex": self.latex(),
            "report.json": self.json(),
        }

    def html(self, making: Making = UNKNOWN) -> str:
        """One page that needs nothing else."""
        return page(self, self.drawn, self.texts(), making)

    def save(self, folder: Path, making: Making = UNKNOWN) -> Saved:
        """Write every file there is; a reader sees the old ones or the new ones."""
        texts = self.texts()
        return save(folder, texts | {"report.html": page(self, self.drawn, texts, making)}, self.drawn)
