"""What trained language models are asked: tasks of lm-eval, and sets of them in the columns of the paper's tables.

    evaluate: [general, retrieval]
    evaluate: {tasks: [general, boolq, my_task.yaml], length: 2048}

A name is a set, a task or a group of lm-eval, one of our own tasks, or the path of a task's YAML file.  Evaluating
trains nothing, so none of it is in a cell's key.  Accuracies are percent, and a set's average is over its accuracies:

    eval/piqa/acc,   eval/wikitext/word_perplexity,   eval/general/average
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.experiment.task_files import DEFINES, defined, definition_of, is_path
from hqlt_lab.registry import included, settings_from, too_small


class Column(NamedTuple):
    """One of a table."""

    title: str
    task: str
    metric: str
    counts: bool = True  # in the average of its set

    @property
    def name(self) -> str:
        return f"eval/{self.task}/{self.metric}"


SETS: Mapping[str, tuple[Column, ...]] = {
    "general": (
        Column("Wiki. ppl", "wikitext", "word_perplexity", counts=False),
        Column("LMB. ppl", "lambada_openai", "perplexity", counts=False),
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
        Column("FDA (lm-eval)", "fda", "contains", counts=False),
    ),
}
PERCENT = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "contains", "em")  # lm-eval has 0 to 1
OWN = ("squad_newline", "fda_original")  # tasks that lm-eval does not have in this form


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What the reported cells are asked when a study is trained."""

    tasks: list[str]
    """Sets, tasks and groups of lm-eval, or paths of task files that came in by --with."""
    length: int | None = None
    """Tokens of context that every arm gets; null: as many as it was trained on."""
    limit: int | None = None
    """Documents per task; null: all, which is what counts."""
    local: str | None = None
    """A folder with TASK.jsonl files that stand for the datasets of the hub; null: the hub, or its cache."""
    batch_size: int = 16
    """Rows at a time; results do not depend on it."""

    def __post_init__(self) -> None:
        wrong = too_small(self, {"length": 1, "limit": 1, "batch_size": 1})
        if not wrong:
            wrong = list(unknown(self.tasks))
        if wrong:
            raise ConfigError("\n".join(wrong))


def evaluation_of(told: Any) -> EvaluateConfig | None:
    """The section of a file; a list is its tasks."""
    if told is None:
        return None
    given = told if isinstance(told, Mapping) else {"tasks": told}
    if not isinstance(given.get("tasks"), list) or not given["tasks"]:
        raise ConfigError(f"evaluate: a list of tasks is needed, such as [general]; got {told!r}.")
    try:
        return settings_from(EvaluateConfig, given)
    except ConfigError as error:
        raise ConfigError("\n".join(f"evaluate.{line}" for line in str(error).splitlines())) from error


def single_tasks(names: Iterable[str]) -> list[str]:
    """With sets taken apart, each task once."""
    found = [name if name not in SETS else [column.task for column in SETS[name]] for name in names]
    return list(dict.fromkeys(task for one in found for task in ([one] if isinstance(one, str) else one)))


def columns_of(metrics: Iterable[str], names: Sequence[str] = tuple(SETS)) -> dict[str, str]:
    """Of these metrics, name -> title: sets in the paper's layout with their average, then everything else."""
    known = list(dict.fromkeys(metrics))
    made: dict[str, str] = {}
    for name in (name for name in SETS if name in names):
        made |= {column.name: column.title for column in SETS[name]} | {average(name): "Avg."}
    rest = {name: name.removeprefix("eval/") for name in known if name not in made}
    return {name: title for name, title in (made | rest).items() if name in known}


def average(name: str) -> str:
    return f"eval/{name}/average"


def is_asked(metric: str) -> bool:
    """Whether a metric is an answer to a task, rather than a score on the held-out text."""
    return "eval/" in metric and metric.split("eval/")[0] in ("", "without_fw/", "without_kv/")


def unasked(report: Iterable[str], evaluate: EvaluateConfig | None) -> Iterable[str]:
    """A sentence for each reported metric that no task will give."""
    names = evaluate.tasks if evaluate else []
    files = {name.decode() for one in names if is_path(one) for name in DEFINES.findall(Path(one).read_bytes())}
    tasks = {*single_tasks(names), *files, *(name for name in names if name in SETS)}
    for metric in filter(is_asked, report):
        task = metric.partition("eval/")[2].split("/")[0]
        if not any(task == name or task.startswith(f"{name}_") for name in tasks):
            known = list(columns_of([column.name for one in SETS.values() for column in one]))
            nearest = did_you_mean(metric, known)
            yield f"measure.report: {metric!r} is no task's answer: say `evaluate: [{task}]`, or leave it out.{nearest}"


def unknown(names: Iterable[Any]) -> Iterable[str]:
    """A sentence for each name that means nothing."""
    known = [*SETS, *OWN, *dict.fromkeys(column.task for columns in SETS.values() for column in columns)]
    for name in names:
        if not isinstance(name, str):
            yield f"tasks: a name or a path is needed, got {name!r}."
        elif is_path(name):
            if not Path(name).is_file():
                yield f"tasks: there is no file {name}."
            elif Path(name).resolve() not in included():
                yield (
                    f"tasks: {name} is a task file, which may run code when it is asked. An experiment file alone does "
                    f"not decide that: say `hqlt --with {name} ...`, if you trust it."
                )
        elif name not in known and definition_of(name) is None:
            nearest = did_you_mean(name, known) or did_you_mean(name, defined())
            yield (
                f"tasks: no task is called {name!r}.{nearest} There is: {listed(dict.fromkeys(known))}, "
                "every task and group of lm-eval by its name, and task files by their path."
            )
