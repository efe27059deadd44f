"""Filters that select cells by their labels: `--only arm=synchronous,seed=1`.

The labels of a cell are its arm, its seed, and its value on every axis. Several values of one label are alternatives,
conditions on different labels must all hold.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hqlt_lab.errors import ConfigError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.apply_overrides import format_value, short_path
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.expand_cells import PlannedCell

Item = TypeVar("Item")
QUOTED = r'"(?:[^"\\]|\\.)*"'
QUOTED_VALUE = re.compile(QUOTED)  # of a filter: label="value"
CONDITION = re.compile(rf"[^=,]*=\s*{QUOTED}\s*(?=,|$)|[^,]*")  # one label=value of a filter
ESCAPED_CHARACTER, SPECIAL_CHARACTER = re.compile(r"\\(.)"), re.compile(r'(["\\])')  # in a quoted value


def filter_cells(planned: list[PlannedCell], filters: Sequence[str]) -> list[PlannedCell]:
    """Return the cells that match filters such as `arm=synchronous,seed=1` (`--only`)."""
    if not filters:
        return planned
    return select_items(planned, [labels_from_cell(planned_cell.cell) for planned_cell in planned], filters)


def select_items(items: Sequence[Item], labels: Sequence[Mapping[str, str]], filters: Sequence[str]) -> list[Item]:
    """Return the items whose labels match the filters; several values of one label are alternatives.

    `labels[i]` are the labels of `items[i]`. Raise ConfigError for an unknown label or value, or if nothing matches.
    """
    values_by_label = parse_filters(filters)
    for label, values in values_by_label.items():
        existing_values = {item_labels[label] for item_labels in labels if label in item_labels}
        if not existing_values:
            names = sorted({name for item_labels in labels for name in item_labels})
            raise ConfigError.at(
                "--only",
                "unknown_label",
                f"cells have no label {label!r}.",
                join_sentences(did_you_mean(label, names), f"Labels: {format_names(names)}."),
            )
        for value in values - existing_values:
            choices = [quote_filter_value(existing_value) for existing_value in sorted(existing_values)]
            raise ConfigError.at(
                "--only",
                "unknown_label_value",
                f"no cell has {label}={value}.",
                join_sentences(did_you_mean(value, choices), f"Values: {format_names(choices)}."),
            )
    matching = [
        item for item, item_labels in zip(items, labels, strict=True) if matches_filters(item_labels, values_by_label)
    ]
    if not matching:
        filter_text = filters if isinstance(filters, str) else ",".join(filters)
        raise ConfigError.at(
            "--only",
            "no_cell_matches",
            f"no cell matches all conditions of {filter_text}; each of them matches some cells.",
        )
    return matching


def matches_filters(labels: Mapping[str, str], filters: Mapping[str, set[str]]) -> bool:
    """Return whether each filtered label has one of its allowed values."""
    return all(labels.get(label) in values for label, values in filters.items())


def parse_filters(filters: Sequence[str]) -> dict[str, set[str]]:
    """Return the allowed values of each label: arm=a,seed=1 and arm=b give {arm: {a, b}, seed: {1}}.

    A value with a comma is written in double quotes, such as arm="a, b". A backslash precedes a quote in such a value.
    """
    values_by_label: dict[str, set[str]] = {}
    for condition in split_filters([filters] if isinstance(filters, str) else filters):
        label, equals, value = condition.partition("=")
        if not equals:
            raise ConfigError.at(
                "--only",
                "not_label_and_value",
                f"{condition!r} is not label=value.",
                'Write for example arm=NAME or seed=0, and a value with a comma in quotes: arm="a, b".',
            )
        value = value.strip()
        is_quoted = QUOTED_VALUE.fullmatch(value) is not None
        values_by_label.setdefault(label.strip(), set()).add(
            ESCAPED_CHARACTER.sub(r"\1", value[1:-1]) if is_quoted else value
        )
    return values_by_label


def split_filters(filters: Iterable[str]) -> Iterator[str]:
    """Yield each label=value of filters such as arm=a,seed=1, which commas outside of double quotes separate."""
    for text in filters:
        start = 0
        while start <= len(text):
            condition = CONDITION.match(text, start)
            assert condition is not None  # the pattern also matches the empty text
            yield condition[0]
            start = condition.end() + 1


def format_filters(label: str, values: Iterable[str]) -> str:
    """Return the value of `--only` that selects these values of a label, such as arm=a,arm="b, c"."""
    return ",".join(f"{label}={quote_filter_value(value)}" for value in values)


def quote_filter_value(value: str) -> str:
    """Return the value as `parse_filters` reads it: in double quotes if it has a comma, a quote or outer spaces."""
    if "," not in value and '"' not in value and value == value.strip():
        return value
    return '"' + SPECIAL_CHARACTER.sub(r"\\\1", value) + '"'


def labels_from_cell(cell: Cell) -> dict[str, str]:
    """Return the labels of a cell: arm, seed, and its value on every axis by short and by full path."""
    return cell_labels(cell.arm.name, cell.seed, cell.axes)


def cell_labels(arm: str, seed: int, axes: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a cell with this arm, seed and axis values, by short and by full path."""
    values = {path: format_value(value) for path, value in axes.items()}
    return {"arm": arm, "seed": str(seed)} | values | {short_path(path, axes): value for path, value in values.items()}
