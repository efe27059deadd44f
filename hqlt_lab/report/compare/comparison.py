"""All that differs between things, in sections; or between one experiment and what was published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from hqlt_lab.errors import ConfigError
from hqlt_lab.report.compare.code import code_differs
from hqlt_lab.report.compare.published import against_published
from hqlt_lab.report.compare.results import cells_came_to, studies_came_to
from hqlt_lab.report.compare.section import Section
from hqlt_lab.report.compare.settings import cells_differ, studies_differ
from hqlt_lab.report.compare.subject import Study, Trained
from hqlt_lab.report.render import escaped, markdown_table
from hqlt_lab.words import in_json


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared, and what was found."""

    things: Sequence[str]
    sections: Sequence[Section]

    @property
    def title(self) -> str:
        return " and ".join(self.things) if len(self.things) > 1 else f"{self.things[0]} and what was published"

    def markdown(self) -> str:
        """A heading per section."""
        pieces = [f"# {escaped(self.title)}"]
        for section in self.sections:
            table = section.table
            pieces += [f"## {section.name.capitalize()}", *map(escaped, section.said)]
            pieces += [markdown_table(table), *map(escaped, table.notes)] if table else []
        return "\n\n".join(pieces) + "\n"

    def json(self) -> str:
        """For programs: every number in full."""
        told = {one.name: {"said": list(one.said), "entries": list(one.entries)} for one in self.sections}
        return in_json({"things": list(self.things)} | told) + "\n"


def compare(things: Sequence[Trained | Study]) -> Comparison:
    """Cells with cells, studies with studies; a single study with what was published."""
    names = [thing.name for thing in things]
    kinds: set[Any] = {type(thing) for thing in things}
    if len(kinds) > 1:
        told = ", ".join(f"{thing.name} is a {'study' if isinstance(thing, Study) else 'cell'}" for thing in things)
        raise ConfigError(f"Cells are compared with cells and studies with studies; {told}.")
    if kinds == {Study}:
        return Comparison(things=names, sections=of_studies(cast(Sequence[Study], things)))
    if len(things) == 1:
        raise ConfigError(f"{names[0]}: a cell is compared with another one; name a second cell.")
    cells = cast(Sequence[Trained], things)
    return Comparison(things=names, sections=[cells_differ(cells), code_differs(cells), cells_came_to(cells)])


def of_studies(studies: Sequence[Study]) -> list[Section]:
    if len(studies) == 1:
        return [against_published(studies[0])]
    return [studies_differ(studies), code_differs(studies), studies_came_to(studies)]
