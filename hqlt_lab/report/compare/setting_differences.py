"""Compare settings: list every path whose values differ, and count the paths with equal values."""

from collections.abc import Sequence
from typing import Any

from hqlt_lab.experiment.apply_overrides import format_value
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.build_tables import Table
from hqlt_lab.report.compare.comparison_section import EMPTY_CELL, ComparisonSection
from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy, SettingValues
from hqlt_lab.report.value_formatting import join_names

MISSING = object()  # the target has no such setting; None is a regular value
MAX_NAMES = 6


def compare_cell_settings(cells: Sequence[ComparedCell]) -> ComparisonSection:
    """Return the section on settings of trained cells."""
    different, same = differing_settings([cell.settings for cell in cells])
    return build_settings_section([cell.name for cell in cells], different, [describe_same_count(same)], same)


def compare_study_settings(studies: Sequence[ComparedStudy]) -> ComparisonSection:
    """Return the section on settings of studies: shared arms, tuned axes, seeds, and arms that only some have."""
    shared = [title for title in studies[0].arm_settings if all(title in study.arm_settings for study in studies)]
    sentences = [describe_own_arms(study, studies) for study in studies if describe_own_arms(study, studies)]
    if shared:
        different, same = differing_settings_by_arm(studies, shared)
    else:
        firsts = [next(iter(study.arm_settings)) for study in studies]
        different, same = differing_settings(
            [study.arm_settings[first] for study, first in zip(studies, firsts, strict=True)]
        )
        sentences.append(
            f"No arm is in all studies. The settings are those of their first arms: {join_names(firsts, MAX_NAMES)}."
        )
    plan_differences, same_in_plan = differing_settings([plan_settings(study) for study in studies])
    return build_settings_section(
        [study.name for study in studies],
        different | plan_differences,
        [describe_same_count(same), *sentences],
        same + same_in_plan,
    )


def differing_settings(settings_by_target: Sequence[SettingValues]) -> tuple[dict[str, list[Any]], int]:
    """Return the values of each path where they differ, and the number of paths where they are equal."""
    paths = dict.fromkeys(path for settings in settings_by_target for path in settings)
    values_by_path = {path: [settings.get(path, MISSING) for settings in settings_by_target] for path in paths}
    different = {
        path: values for path, values in values_by_path.items() if any(value != values[0] for value in values[1:])
    }
    return different, len(paths) - len(different)


def differing_settings_by_arm(
    studies: Sequence[ComparedStudy], shared_arms: Sequence[str]
) -> tuple[dict[str, list[Any]], int]:
    """Return differing values by path over all shared arms, and the number of paths that are equal in all of them.

    A difference that is the same in every arm appears once; others appear with the names of their arms.
    """
    different_by_arm = {
        title: differing_settings([study.arm_settings[title] for study in studies])[0] for title in shared_arms
    }
    paths = dict.fromkeys(path for study in studies for title in shared_arms for path in study.arm_settings[title])
    different: dict[str, list[Any]] = {}
    for path in paths:
        groups: list[tuple[list[Any], list[str]]] = []
        for title in shared_arms:
            values = different_by_arm[title].get(path)
            arms = next((titles for group_values, titles in groups if group_values == values), None)
            if values is not None and arms is None:
                groups.append((values, [title]))
            elif arms is not None:
                arms.append(title)
        for values, titles in groups:
            different[path if titles == shared_arms else f"{path} ({join_names(titles, MAX_NAMES)})"] = values
    same_paths = [
        path for path in paths if not any(path in different_paths for different_paths in different_by_arm.values())
    ]
    return different, len(same_paths)


def plan_settings(study: ComparedStudy) -> SettingValues:
    """Return the settings of a study that are not part of an arm: tuned axes and seeds."""
    experiment = study.experiment
    settings: dict[str, Any] = {f"tune.{path}": axis for path, axis in experiment.tune.items()}
    settings |= {"seeds": list(experiment.seeds)} | ({"looks": list(experiment.looks)} if experiment.looks else {})
    settings |= {"tune_seeds": list(experiment.tune_seeds)} if experiment.has_tuning_cells else {}
    return settings


def describe_own_arms(study: ComparedStudy, studies: Sequence[ComparedStudy]) -> str:
    """Return a sentence on the arms that only this study has; empty if there are none."""
    other_arms = {title for other in studies if other is not study for title in other.arm_settings}
    own_arms = [title for title in study.arm_settings if title not in other_arms]
    return (
        f"Only {study.name} has {'the arm' if len(own_arms) == 1 else 'the arms'} {join_names(own_arms, MAX_NAMES)}."
        if own_arms
        else ""
    )


def describe_same_count(num_same: int) -> str:
    return "1 setting is the same." if num_same == 1 else f"{pluralize_count(num_same, 'setting')} are the same."


def build_settings_section(
    names: list[str], different: dict[str, list[Any]], sentences: list[str], num_same: int
) -> ComparisonSection:
    """Build the section with one line per differing path."""
    entries = [
        {"path": path, "values": [None if value is MISSING else plain_setting(value) for value in values]}
        for path, values in different.items()
    ]
    rows = [[path, *map(format_setting, values)] for path, values in different.items()]
    sentences = sentences if rows else ["All settings are the same.", *sentences[1:]]
    table = Table(["setting", *names], rows) if rows else None
    return ComparisonSection(name="settings", sentences=sentences, table=table, entries=[*entries, {"same": num_same}])


def format_setting(value: Any) -> str:
    """Format a setting in full precision; a range as e.g. "0.0001 to 0.1, log, 20 trials"."""
    if isinstance(value, Range):
        return f"{value.low} to {value.high}{', log' if value.log else ''}, {value.trials} trials"
    return EMPTY_CELL if value is MISSING else format_value(value)


def plain_setting(value: Any) -> Any:
    return vars(value) if isinstance(value, Range) else value
