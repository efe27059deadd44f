"""Parts of a task with options of their own: segments and stages of training, slices of valid and test.

    segments: [{rows: 100000, pairs: 4}, {rows: 20000, pairs: 16}]       `rows` is required
    stages: [{steps: 500, pairs: 4}, {pairs: 16}]                        each lasts for its `steps`, the last to the end
    test_slices: [{pairs: 4}, {pairs: 16, test_length: [256, 256]}]      named pairs_4 and pairs_16_length_256

All parts have the tokens of the task.  Each has random streams of its own: a segment with more pairs than another does
not begin with the same pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hqlt_lab.errors import ConfigError, ConfigIssue, format_names, join_sentences
from hqlt_lab.registry.options import format_type, matches_type, suggest_integer
from hqlt_lab.registry.settings_parsing import field_types, suggest_name
from hqlt_lab.tasks._counter_rng import IntArray
from hqlt_lab.tasks._length_scoring import bucket_name

if TYPE_CHECKING:
    from hqlt_lab.tasks._generated_task import GeneratedTask

# options that hold for the whole task
SHARED_OPTIONS = ("rows", "order", "segments", "stages", "test_slices", "targets", "eval_size", "data_seed")
LENGTH_OPTIONS = ("train_length", "test_length", "valid_length")


class TaskPart(NamedTuple):
    """A part of a split: rows of a task with its own options."""

    name: str  # in metrics
    task: "GeneratedTask"
    rows: int
    stream: str  # added to the names of its random streams


def make_segments(task: "GeneratedTask") -> list[TaskPart]:
    """Return the segments of a task's training set."""
    segments = task.segments or []
    return [
        TaskPart(name_part(settings), make_part_task(task, settings, "segments"), settings["rows"], f"/segment_{index}")
        for index, settings in enumerate(segments)
    ]


def make_stages(task: "GeneratedTask") -> list[TaskPart]:
    """Return the stages of a task's training."""
    return [
        TaskPart(name_part(settings), make_part_task(task, settings, "stages"), 0, f"/stage_{index}")
        for index, settings in enumerate(task.stages or [])
    ]


def find_stage(stages: Sequence[Mapping[str, Any]], step: int) -> int:
    """Return the index of the stage of a training step."""
    ends = list(accumulate(settings["steps"] for settings in stages[:-1]))
    return sum(end <= step for end in ends)


def make_test_slices(task: "GeneratedTask") -> list[TaskPart]:
    """Return the slices of valid and test, among which `eval_size` is divided."""
    slices = task.test_slices or []
    parts = [
        TaskPart(name_part(settings), make_part_task(task, settings, "test_slices"), 0, f"/slice_{index}")
        for index, settings in enumerate(slices)
    ]
    return split_evenly(parts, task.eval_size)


def split_evenly(parts: Sequence[TaskPart], rows: int) -> list[TaskPart]:
    """Return the parts with equal numbers of rows, which differ by at most 1."""
    count = len(parts)
    return [part._replace(rows=(index + 1) * rows // count - index * rows // count) for index, part in enumerate(parts)]


def make_part_task(task: "GeneratedTask", settings: Mapping[str, Any], option: str) -> "GeneratedTask":
    """Return the task with the options of a part.  It has the sizes of its splits only."""
    options = {name: value for name, value in settings.items() if name not in ("rows", "steps")}
    lengths = {name: options.get(name, getattr(task, name)) for name in LENGTH_OPTIONS}
    if option != "test_slices":
        options |= {"test_length": lengths["train_length"], "valid_length": None}
    else:
        options |= {"train_length": lengths["test_length"]}
    return replace(task, rows=None, segments=None, stages=None, test_slices=None, **options)


def name_part(settings: Mapping[str, Any]) -> str:
    """Return the name of a part in metrics, such as pairs_4_length_64."""
    words = [f"{name}_{value}" for name, value in settings.items() if name not in ("rows", "steps", *LENGTH_OPTIONS)]
    lengths = settings.get("test_length")
    return "_".join([*words, bucket_name((lengths[0], lengths[1]))] if lengths else words)


def split_by_part(parts: Sequence[TaskPart], numbers: IntArray) -> Iterator[tuple[TaskPart, IntArray]]:
    """Yield runs of rows of the same part, with their numbers in the part.  Numbers beyond all parts start again."""
    ends = np.array(list(accumulate(part.rows for part in parts)))
    numbers = numbers % ends[-1]
    indices = ends.searchsorted(numbers, side="right")
    for index, run in groupby(range(len(numbers)), key=lambda row: int(indices[row])):
        part = parts[index]
        yield part, numbers[list(run)] - (int(ends[index]) - part.rows)


def find_part_issues(task: "GeneratedTask") -> list[ConfigIssue]:
    """Return an issue for each mistake in `segments`, `stages` and `test_slices`."""
    issues: list[ConfigIssue] = []
    for option in ("segments", "stages", "test_slices"):
        parts = getattr(task, option)
        if parts is None:
            continue
        if not parts or len(parts) > task.eval_size:
            message = f"1 to {task.eval_size} parts are allowed with this eval_size, got {len(parts)}."
            issues.append(ConfigIssue(option, "number_of_parts", message))
        for index, settings in enumerate(parts):
            part_issues = find_setting_issues(task, settings, option) or find_task_issues(task, settings, option)
            issues += [issue.under(f"{option}[{index}]") for issue in part_issues]
        if option == "stages" and not issues:
            issues += find_step_issues(parts)
        names = [name_part(settings) for settings in parts] if option == "test_slices" and not issues else []
        for index, name in enumerate(names):
            if not name or name in names[:index]:
                message = "the options of each slice must be different, because its metrics are named after them."
                issues.append(ConfigIssue(f"{option}[{index}]", "slice_without_name", message))
    return issues


def find_setting_issues(task: "GeneratedTask", settings: Mapping[str, Any], option: str) -> list[ConfigIssue]:
    """Return an issue for each unknown option of a part, each value of a wrong type, and missing rows."""
    types = {**field_types(type(task)), "rows": int, "steps": int}  # type: ignore[arg-type]  # a class has a hash
    names = [field.name for field in fields(task) if field.name not in SHARED_OPTIONS]
    names = [*{"segments": ["rows"], "stages": ["steps"]}.get(option, []), *names]
    issues = []
    for name, value in settings.items():
        if name not in names:
            hint = join_sentences(suggest_name(str(name), names), f"Options: {format_names(names)}.")
            issues.append(ConfigIssue(str(name), "unknown_part_option", f"a part has no option {name!r}.", hint))
        elif not matches_type(value, types[name]):
            message = f"{format_type(types[name])} is needed, got {value!r}."
            issues.append(ConfigIssue(name, "part_option_of_wrong_type", message, suggest_integer(value, types[name])))
    if option == "segments" and not issues and settings.get("rows", 0) < 1:
        message = "a segment needs a number of rows, at least 1."
        issues.append(ConfigIssue("rows", "segment_without_rows", message))
    return issues


def find_step_issues(stages: Sequence[Mapping[str, Any]]) -> list[ConfigIssue]:
    """Return an issue for each stage but the last without steps, and one if the last has steps."""
    issues = [
        ConfigIssue(f"stages[{index}].steps", "stage_without_steps", "a number of steps is needed, at least 1.")
        for index, settings in enumerate(stages[:-1])
        if settings.get("steps", 0) < 1
    ]
    if "steps" in stages[-1]:
        message = "the last stage lasts until the end of training."
        issues.append(ConfigIssue(f"stages[{len(stages) - 1}].steps", "steps_of_last_stage", message, "Leave it out."))
    return issues


def find_task_issues(task: "GeneratedTask", settings: Mapping[str, Any], option: str) -> list[ConfigIssue]:
    """Return the issues of a part's options in combination, and one if its tokens are not those of the task."""
    try:
        part = make_part_task(task, settings, option)
    except ConfigError as error:
        return list(error.issues)
    if part.alphabet != task.alphabet:
        message = f"this part has {part.vocabulary} different tokens, but the task has {task.vocabulary}."
        return [ConfigIssue("", "part_with_other_tokens", message, "Set these options in the task itself.")]
    return []
