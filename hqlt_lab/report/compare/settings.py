"""Where settings differ: every path whose value is not the same everywhere, and how many are."""

from collections.abc import Sequence
from typing import Any

from hqlt_lab.experiment.change import spelled_value
from hqlt_lab.experiment.tune import Range
from hqlt_lab.report.compare.section import NOTHING, Section
from hqlt_lab.report.compare.subject import Settings, Study, Trained
from hqlt_lab.report.table import Table
from hqlt_lab.report.words import counted, joined

MISSING = object()  # another part has no such option; null is a value
MANY = 6


def cells_differ(cells: Sequence[Trained]) -> Section:
    """The settings of trained cells."""
    different, same = apart([cell.settings for cell in cells])
    return section([cell.name for cell in cells], different, [sentence(same)], same)


def studies_differ(studies: Sequence[Study]) -> Section:
    """The settings of arms that all have, what is tuned, the seeds; and arms that only some have."""
    shared = [title for title in studies[0].arms if all(title in study.arms for study in studies)]
    said = [only_in(study, studies) for study in studies if only_in(study, studies)]
    if shared:
        different, same = by_arm(studies, shared)
    else:
        firsts = [next(iter(study.arms)) for study in studies]
        different, same = apart([study.arms[first] for study, first in zip(studies, firsts, strict=True)])
        said.append(f"No arm is in all of them; the settings are those of their first ones: {joined(firsts, MANY)}.")
    around, same_around = apart([plan_of(study) for study in studies])
    return section([study.name for study in studies], different | around, [sentence(same), *said], same + same_around)


def apart(told: Sequence[Settings]) -> tuple[dict[str, list[Any]], int]:
    """Path -> values where they differ, and the number of paths where they do not."""
    paths = dict.fromkeys(path for settings in told for path in settings)
    values = {path: [settings.get(path, MISSING) for settings in told] for path in paths}
    different = {path: found for path, found in values.items() if any(value != found[0] for value in found[1:])}
    return different, len(paths) - len(different)


def by_arm(studies: Sequence[Study], shared: Sequence[str]) -> tuple[dict[str, list[Any]], int]:
    """What differs in every arm is told once; what differs in some, with their names."""
    found = {title: apart([study.arms[title] for study in studies])[0] for title in shared}
    paths = dict.fromkeys(path for study in studies for title in shared for path in study.arms[title])
    different: dict[str, list[Any]] = {}
    for path in paths:
        groups: list[tuple[list[Any], list[str]]] = []
        for title in shared:
            values = found[title].get(path)
            same = next((titles for known, titles in groups if known == values), None)
            if values is not None and same is None:
                groups.append((values, [title]))
            elif same is not None:
                same.append(title)
        for values, titles in groups:
            different[path if titles == shared else f"{path} ({joined(titles, MANY)})"] = values
    same_paths = [path for path in paths if not any(path in one for one in found.values())]
    return different, len(same_paths)


def plan_of(study: Study) -> Settings:
    """What a study does with its arms."""
    experiment = study.experiment
    searched = any(isinstance(axis, Range) for axis in experiment.tune.values())
    told: dict[str, Any] = {f"tune.{path}": axis for path, axis in experiment.tune.items()}
    told |= {"seeds": list(experiment.seeds)} | ({"tune_seeds": list(experiment.tune_seeds)} if searched else {})
    return told


def only_in(study: Study, studies: Sequence[Study]) -> str:
    """Only in B: linear, retention."""
    others = {title for other in studies if other is not study for title in other.arms}
    alone = [title for title in study.arms if title not in others]
    return (
        f"Only {study.name} has {'the arm' if len(alone) == 1 else 'the arms'} {joined(alone, MANY)}." if alone else ""
    )


def sentence(same: int) -> str:
    return "1 setting is the same." if same == 1 else f"{counted(same, 'setting')} are the same."


def section(names: list[str], different: dict[str, list[Any]], said: list[str], same: int) -> Section:
    """A line per path."""
    entries = [
        {"path": path, "values": [None if value is MISSING else plain(value) for value in values]}
        for path, values in different.items()
    ]
    rows = [[path, *map(spelled, values)] for path, values in different.items()]
    said = said if rows else ["All settings are the same.", *said[1:]]
    table = Table(["setting", *names], rows) if rows else None
    return Section(name="settings", said=said, table=table, entries=[*entries, {"same": same}])


def spelled(value: Any) -> str:
    """Every digit; a range is low to high."""
    if isinstance(value, Range):
        return f"{value.low} to {value.high}{', log' if value.log else ''}, {value.trials} trials"
    return NOTHING if value is MISSING else spelled_value(value)


def plain(value: Any) -> Any:
    return vars(value) if isinstance(value, Range) else value
