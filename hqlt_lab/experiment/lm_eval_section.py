"""The `evaluate` section: lm-eval tasks for trained language models, and task sets with the columns of the paper.

    evaluate: [general, retrieval]
    evaluate: {tasks: [general, boolq, my_task.yaml], length: 2048}

A name is a task set, a task or group of lm-eval, a task defined in this project, or the path of a task's YAML file.
Evaluation does not train, so this section is not part of a cell's key. Accuracies are in percent; the average of a set
is over its accuracies:

    eval/piqa/acc,   eval/wikitext/word_perplexity,   eval/general/average

Task definitions are found by searching lm-eval's YAML files, because lm-eval takes 13 seconds to build its own index.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, issues_under, join_sentences
from hqlt_lab.registry import check_minimums, list_loaded_files, parse_settings

TASK_DEFINITION = re.compile(rb"^ *(?:- )?(?:task|group): *[\"']?([\w.-]+)", re.MULTILINE)
TASK_NAME = re.compile(r"[\w.-]+")


def is_task_file(name: str) -> bool:
    """Return whether a task is given by the path of its YAML file."""
    return name.endswith((".yaml", ".yml"))


def find_task_definition(name: str) -> Path | None:
    """Return the YAML file that defines a task or group of lm-eval. Search likely files first, then all files."""
    folder = find_tasks_folder()
    if not TASK_NAME.fullmatch(name):
        return None
    for file in [*folder.glob(f"*/{name}.yaml"), *(folder / name).glob("*.yaml")]:
        if name.encode() in TASK_DEFINITION.findall(file.read_bytes()):
            return file
    return index_task_definitions().get(name)


@cache
def index_task_definitions() -> dict[str, Path]:
    """Return the file of every task and group of lm-eval, by name. Takes seconds; cached."""
    file_by_name: dict[str, Path] = {}
    for file in sorted(find_tasks_folder().rglob("*.yaml")):
        for name in TASK_DEFINITION.findall(file.read_bytes()):
            file_by_name.setdefault(name.decode(), file)
    return file_by_name


def find_tasks_folder() -> Path:
    """Return the folder of lm-eval's task definitions, without importing lm-eval."""
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "tasks"


class Column(NamedTuple):
    """A column of a results table: one metric of one task."""

    title: str
    task: str
    metric: str
    is_averaged: bool = True  # whether it is included in the average of its set

    @property
    def name(self) -> str:
        return f"eval/{self.task}/{self.metric}"


TASK_SETS: Mapping[str, tuple[Column, ...]] = {
    "general": (
        Column("Wiki. ppl", "wikitext", "word_perplexity", is_averaged=False),
        Column("LMB. ppl", "lambada_openai", "perplexity", is_averaged=False),
        Column("LMB. acc", "lambada_openai", "acc"),
        Column("PIQA", "piqa", "acc"),
        Column("Hella.", "hellaswag", "acc_norm"),
        Column("Wino.", "winogrande", "acc"),
        Column("ARC-e", "arc_easy", "acc"),
        Column("ARC-c", "arc_challenge", "acc_norm"),
    ),
    "retrieval": (
        Column("SWDE", "swde", "contains"),
        Column("SQuAD", "squad_newline", "contains"),
        Column("FDA", "fda_original", "contains"),
        Column("FDA (lm-eval)", "fda", "contains", is_averaged=False),
    ),
}
# metrics that lm-eval gives as a fraction, and that are reported in percent
PERCENT_METRICS = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "contains", "em")
OWN_TASKS = ("squad_newline", "fda_original")  # defined in this project: lm-eval does not have them in this form


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Evaluation of the reported cells with lm-eval after training."""

    tasks: list[str]
    """Task sets, tasks and groups of lm-eval, or paths of task files loaded with --with."""
    length: int | None = None
    """Context length in tokens for every arm; null: its training length."""
    limit: int | None = None
    """Number of documents per task; null: all. Only results on all documents are reported."""
    local: str | None = None
    """Folder with TASK.jsonl files to use instead of the hub's datasets; null: the hub or its cache."""
    batch_size: int = 16
    """Sequences per batch; does not change results."""

    def __post_init__(self) -> None:
        issues = check_minimums(self, {"length": 1, "limit": 1, "batch_size": 1})
        if not issues:
            issues = list(find_unknown_tasks(self.tasks))
        if issues:
            raise ConfigError(*issues)


def parse_evaluate(section: Any) -> EvaluateConfig | None:
    """Parse the `evaluate` section: a list of tasks, or a mapping with `tasks`."""
    if section is None:
        return None
    settings = section if isinstance(section, Mapping) else {"tasks": section}
    if not isinstance(settings.get("tasks"), list) or not settings["tasks"]:
        message = f"a list of tasks is needed, such as [general]; got {section!r}."
        raise ConfigError.at("evaluate", "not_a_list_of_tasks", message)
    with issues_under("evaluate"):
        return parse_settings(EvaluateConfig, settings)


def expand_task_sets(names: Iterable[str]) -> list[str]:
    """Return the tasks with each set replaced by its tasks, without duplicates."""
    expanded = ([column.task for column in TASK_SETS[name]] if name in TASK_SETS else [name] for name in names)
    return list(dict.fromkeys(task for tasks in expanded for task in tasks))


def order_columns(metrics: Iterable[str], names: Sequence[str] = tuple(TASK_SETS)) -> dict[str, str]:
    """Return {metric: column title} in display order: task sets as in the paper with their average, then the rest."""
    available = list(dict.fromkeys(metrics))
    titles: dict[str, str] = {}
    for task_set in (task_set for task_set in TASK_SETS if task_set in names):
        titles |= {column.name: column.title for column in TASK_SETS[task_set]} | {average_metric(task_set): "Avg."}
    untitled = {metric: metric.removeprefix("eval/") for metric in available if metric not in titles}
    return {metric: title for metric, title in (titles | untitled).items() if metric in available}


def average_metric(task_set: str) -> str:
    return f"eval/{task_set}/average"


def is_task_metric(metric: str) -> bool:
    """Return whether a metric comes from an lm-eval task, rather than from the task that was trained on."""
    return "eval/" in metric and metric.split("eval/")[0] in ("", "without_fw/", "without_kv/")


def find_unavailable_metrics(metrics: Iterable[str], evaluate: EvaluateConfig | None) -> Iterable[ConfigIssue]:
    """Yield one issue for each reported metric that no task of the `evaluate` section provides."""
    names = evaluate.tasks if evaluate else []
    files = {
        task.decode()
        for file in names
        if is_task_file(file)
        for task in TASK_DEFINITION.findall(Path(file).read_bytes())
    }
    tasks = {*expand_task_sets(names), *files, *(name for name in names if name in TASK_SETS)}
    for metric in filter(is_task_metric, metrics):
        task = metric.partition("eval/")[2].split("/")[0]
        if not any(task == name or task.startswith(f"{name}_") for name in tasks):
            set_metrics = list(order_columns([column.name for columns in TASK_SETS.values() for column in columns]))
            suggestion = "" if metric in set_metrics else did_you_mean(metric, set_metrics)
            yield ConfigIssue(
                "measure.report",
                "metric_of_missing_task",
                f"no task of `evaluate` has the metric {metric!r}.",
                join_sentences(f"Add `evaluate: [{task}]`, or leave the metric out.", suggestion),
            )


def find_unknown_tasks(names: Iterable[Any]) -> Iterable[ConfigIssue]:
    """Yield one issue for each name that is not a task, a task set or a loaded task file."""
    known_names = [
        *TASK_SETS,
        *OWN_TASKS,
        *dict.fromkeys(column.task for columns in TASK_SETS.values() for column in columns),
    ]
    for name in names:
        if not isinstance(name, str):
            yield ConfigIssue("tasks", "not_a_task_name", f"a name or a path is needed, got {name!r}.")
        elif is_task_file(name):
            if not Path(name).is_file():
                yield ConfigIssue("tasks", "task_file_not_found", f"there is no file {name}.")
            elif Path(name).resolve() not in list_loaded_files():
                yield ConfigIssue(
                    "tasks",
                    "task_file_not_loaded",
                    f"{name} is a task file, which can run code, and an experiment file cannot load code.",
                    f"If you trust it, use `hqlt --with {name} ...`.",
                )
        elif name not in known_names and find_task_definition(name) is None:
            suggestion = did_you_mean(name, known_names) or did_you_mean(name, index_task_definitions())
            yield ConfigIssue(
                "tasks",
                "unknown_evaluation_task",
                f"no task is called {name!r}.",
                join_sentences(
                    suggestion,
                    f"Tasks: {format_names(dict.fromkeys(known_names))}, every task and group of lm-eval by its name, "
                    "and task files by their path.",
                ),
            )
