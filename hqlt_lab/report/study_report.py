"""The report of a study: answer, rows and warnings, built from cell records and rendered in several formats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import Row, build_rows, reported_metrics
from hqlt_lab.report.build_tables import Table, build_effects_table, build_importance_table, build_results_table
from hqlt_lab.report.render.csv_table import render_csv
from hqlt_lab.report.render.html_page import render_fragment, render_page
from hqlt_lab.report.render.json_report import render_json
from hqlt_lab.report.render.latex import render_latex, render_latex_table
from hqlt_lab.report.render.reproduction import Reproduction
from hqlt_lab.report.render.text_tables import break_intervals, fit_to_width, render_markdown, render_rich_table
from hqlt_lab.report.render.write_report import SavedReport, write_report
from hqlt_lab.report.solve_table import build_solve_table
from hqlt_lab.report.stats.factorial_effects import Effect, estimate_effects
from hqlt_lab.report.stats.importance import compute_importance
from hqlt_lab.report.tuning_tables import build_score_table, build_window_table
from hqlt_lab.report.wording.answer import Answer, compose_answer
from hqlt_lab.report.wording.caveats import collect_warnings
from hqlt_lab.report.wording.table_notes import compose_notes
from hqlt_lab.study.ledger.cell_record import CellRecord

if TYPE_CHECKING:
    import rich.table
    from matplotlib.figure import Figure

    from hqlt_lab.report.figures.draw_figures import FigureSet

UNKNOWN_REPRODUCTION = Reproduction()


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """Results of an experiment so far, with methods that render them. A notebook displays it as a table."""

    experiment: Experiment
    records: Sequence[CellRecord]  # every cell of the plan
    rows: Sequence[Row]
    effects: Sequence[Effect]  # of a grid, main effects first
    warnings: Sequence[str]
    answer: Answer  # str(answer) is its text
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # empty unless requested

    @classmethod
    def from_records(cls, experiment: Experiment, records: Sequence[CellRecord]) -> "Report":
        """Build a report from the records of all cells of the plan, in whatever state they are."""
        rows = build_rows(experiment, records)
        return cls(
            experiment=experiment,
            records=records,
            rows=rows,
            effects=estimate_effects(experiment, rows),
            warnings=collect_warnings(experiment, rows, records),
            answer=compose_answer(experiment, rows, records),
        )

    @property
    def seeds(self) -> list[int]:
        """The reported seeds; if seeds are added until all comparisons are decided, those that any arm has."""
        trained_seeds = {record.seed for row in self.rows for record in row.records}
        return [seed for seed in self.experiment.final_seeds if not self.experiment.looks or seed in trained_seeds]

    def build_table(self) -> Table:
        return build_results_table(self.experiment, self.rows)

    def build_extra_tables(self) -> dict[str, Table]:
        """Return the tables below the results by heading, without empty ones."""
        measure, tables = self.experiment.measure, self.build_training_tables()
        if self.effects:
            tables["Effects"] = build_effects_table(self.effects, reported_metrics(measure)[0])
        if self.importance:
            tables["Importance"] = build_importance_table(self.importance, measure.select)
        return tables

    def build_training_tables(self) -> dict[str, Table]:
        """Return the tables of tuned values and of steps to solve by heading, without empty ones."""
        tables = {
            "Tuning windows": build_window_table(self.experiment, self.rows),
            "Scores of tuned values": build_score_table(self.experiment, self.rows),
            "Steps to solve": build_solve_table(self.experiment, self.rows),
        }
        return {title: table for title, table in tables.items() if table is not None}

    def with_importance(self) -> "Report":
        """Return a copy with hyperparameter importance, which takes some seconds to compute."""
        return replace(self, importance=compute_importance(self.experiment, self.records))

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return render_fragment(self, ())

    def to_markdown(self, reproduction: Reproduction = UNKNOWN_REPRODUCTION) -> str:
        """Render as Markdown; with commands in `reproduction`, also how to reproduce the results."""
        return render_markdown(self, reproduction)

    def to_csv(self) -> str:
        return render_csv(self.experiment, self.rows)

    def to_rich_tables(self, width: int) -> "list[rich.table.Table]":
        """Return the results table, fitted to the width of the terminal, and the extra tables."""
        results = render_rich_table("", fit_to_width(self.build_table(), width))
        extra_tables = self.build_extra_tables().items()
        return [results, *(render_rich_table(title, break_intervals(table, width)) for title, table in extra_tables)]

    def to_latex(self) -> str:
        notes = compose_notes(self.experiment, self.rows, has_p_columns=False)
        tables = [render_latex_table(title, table) for title, table in self.build_training_tables().items()]
        return "\n".join([render_latex(self.experiment, self.rows, notes), *tables])

    def to_json(self) -> str:
        return render_json(self)

    @cached_property
    def figure_set(self) -> "FigureSet":
        """All figures, and error messages of those that failed. Drawing takes some seconds; the result is cached."""
        from hqlt_lab.report.figures.draw_figures import draw_figures

        return draw_figures(self.experiment, self.rows)

    def matplotlib_figures(self) -> "dict[str, Figure]":
        """Return the matplotlib figures by name, for further editing."""
        return {report_figure.name: report_figure.figure for report_figure in self.figure_set.figures}

    def text_files(self, reproduction: Reproduction = UNKNOWN_REPRODUCTION) -> dict[str, str]:
        """Return the content of every text file of the report except the HTML page, by file name."""
        return {
            "report.md": self.to_markdown(reproduction),
            "report.csv": self.to_csv(),
            "report.tex": self.to_latex(),
            "report.json": self.to_json(),
        }

    def to_html(self, reproduction: Reproduction = UNKNOWN_REPRODUCTION) -> str:
        """Render a self-contained HTML page."""
        return render_page(self, self.figure_set, self.text_files(reproduction), reproduction)

    def save(self, folder: Path, reproduction: Reproduction = UNKNOWN_REPRODUCTION) -> SavedReport:
        """Write all files to a folder. Each file is replaced atomically."""
        texts = self.text_files(reproduction)
        return write_report(
            folder, texts | {"report.html": render_page(self, self.figure_set, texts, reproduction)}, self.figure_set
        )
