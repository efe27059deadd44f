"""Compare cells with cells, studies with studies, or one study with published values, in sections."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from hqlt_lab.errors import ConfigError
from hqlt_lab.formatting import dump_json
from hqlt_lab.report.compare.code_differences import compare_code
from hqlt_lab.report.compare.comparison_section import ComparisonSection
from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy
from hqlt_lab.report.compare.published_differences import compare_with_published
from hqlt_lab.report.compare.result_differences import compare_cell_results, compare_study_results
from hqlt_lab.report.compare.setting_differences import compare_cell_settings, compare_study_settings
from hqlt_lab.report.render.text_tables import escape_markdown, render_markdown_table


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Names of the compared targets, and the sections of the comparison."""

    targets: Sequence[str]
    sections: Sequence[ComparisonSection]

    @property
    def title(self) -> str:
        return " and ".join(self.targets) if len(self.targets) > 1 else f"{self.targets[0]} and published values"

    def to_markdown(self) -> str:
        """Render as Markdown, with a heading per section."""
        blocks = [f"# {escape_markdown(self.title)}"]
        for section in self.sections:
            table = section.table
            blocks += [f"## {section.name.capitalize()}", *map(escape_markdown, section.sentences)]
            blocks += [render_markdown_table(table), *map(escape_markdown, table.notes)] if table else []
        return "\n\n".join(blocks) + "\n"

    def to_json(self) -> str:
        """Render as JSON, with all numbers in full precision."""
        sections = {
            section.name: {"sentences": list(section.sentences), "entries": list(section.entries)}
            for section in self.sections
        }
        return dump_json({"targets": list(self.targets)} | sections) + "\n"


def compare_targets(targets: Sequence[ComparedCell | ComparedStudy]) -> Comparison:
    """Compare cells or studies with the first one; a single study is compared with published values."""
    names = [target.name for target in targets]
    kinds: set[Any] = {type(target) for target in targets}
    if len(kinds) > 1:
        description = ", ".join(
            f"{target.name} is a {'study' if isinstance(target, ComparedStudy) else 'cell'}" for target in targets
        )
        message = f"cells are compared with cells and studies with studies, but {description}."
        raise ConfigError.at("targets", "cells_and_studies", message)
    if kinds == {ComparedStudy}:
        return Comparison(targets=names, sections=study_sections(cast(Sequence[ComparedStudy], targets)))
    if len(targets) == 1:
        raise ConfigError.at("targets", "single_cell", f"{names[0]} is a single cell.", "Name a second cell.")
    cells = cast(Sequence[ComparedCell], targets)
    return Comparison(
        targets=names, sections=[compare_cell_settings(cells), compare_code(cells), compare_cell_results(cells)]
    )


def study_sections(studies: Sequence[ComparedStudy]) -> list[ComparisonSection]:
    if len(studies) == 1:
        return [compare_with_published(studies[0])]
    return [compare_study_settings(studies), compare_code(studies), compare_study_results(studies)]
