"""Tasks by name: lm-eval's own, ours, or a user's file; on the data of the hub, or on local files in their place.

    load_tasks("piqa", None, model)                 as lm-eval loads it
    load_tasks("piqa", Path("data/eval"), model)    the same prompts and metrics on data/eval/piqa.jsonl
    load_tasks("my_task.yaml", None, model)         any task file of lm-eval's format

A local file has a document per line, with the fields of the dataset that it stands for.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getsource
from pathlib import Path
from typing import Any

from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from hqlt_lab.errors import ConfigError, HqltError, StoreError, listed
from hqlt_lab.evaluation.retrieval import FdaOriginal, SquadNewline
from hqlt_lab.evaluation.source import local_file
from hqlt_lab.experiment.cell import digest
from hqlt_lab.experiment.evaluation import OWN
from hqlt_lab.experiment.task_files import definition_of, is_path
from hqlt_lab.generation.text_model import TextModel

Tasks = dict[str, Any]  # what lm-eval's `evaluate` takes: {"tasks": {name: task}, "groups": {...}}


class Everywhere(dict[str, Any]):
    """A dataset that is every split: zero-shot, only the one that is asked is looked at."""

    def __init__(self, documents: Any) -> None:
        super().__init__()
        self.documents = documents

    def __missing__(self, split: str) -> Any:
        return self.documents


def load_tasks(name: str, local: Path | None, text_model: TextModel) -> Tasks:
    """The task of that name, or all of a group, with their documents."""
    file = task_file(name)
    if local is not None and not is_path(name):
        return {"tasks": {name: local_task(name, local_file(name, local), text_model)}}
    with told_of(name, file):
        if file is None:
            return {"tasks": {name: named(own_class(name, text_model)(), name)}}
        manager = TaskManager(include_path=[file.parent], include_defaults=False)
        return dict(manager.load(str(file) if is_path(name) else name))


def task_file(name: str) -> Path | None:
    """Where it is defined; None: here."""
    if name in OWN:
        return None
    file = Path(name) if is_path(name) else definition_of(name)
    if file is None or not file.is_file():
        raise ConfigError(f"tasks: there is no task {name!r}.")
    return file


def own_class(name: str, text_model: TextModel) -> type[Task]:
    """A task of ours, which may need the tokenizer."""
    return SquadNewline if name == "squad_newline" else made_from(FdaOriginal, text_model=text_model)


def local_task(name: str, file: Path, text_model: TextModel) -> Task:
    """A task on the documents of a file, with its prompts and metrics as they are."""
    from datasets import Dataset

    defined = task_file(name)
    config = load_yaml(defined) if defined else {"class": own_class(name, text_model)}
    if "group" in config or not isinstance(config.get("task", name), str):
        raise ConfigError(f"{name}: a group has several datasets, so name its tasks one by one to use local files.")
    if config.get("num_fewshot"):
        raise ConfigError(f"{name}: it shows examples from other documents, of which a local file has none.")
    documents = Dataset.from_list(lines_of(file))
    base = config.pop("class", ConfigurableTask)
    made = made_from(base, download=lambda self, *_, **__: set_documents(self, documents))
    settings = {key: value for key, value in config.items() if key not in ("tag", "task_list")}
    try:
        return named(made(config=settings) if base is ConfigurableTask else made(), name)
    except Exception as error:  # of prompts in other people's templates, that do not find their fields
        fields = listed(documents.column_names)
        raise StoreError(
            f"{file}: these documents are not of task {name} ({type(error).__name__}: {error}). They have the fields "
            f"{fields}; those of the dataset are needed."
        ) from error


def made_from(base: type[Task], **changes: Any) -> Any:
    """A class like this one, with these changes."""
    return type(base.__name__, (base,), {"__module__": __name__, **changes})


def set_documents(task: Any, documents: Any) -> None:
    task.dataset = Everywhere(documents)


def named(task: Any, name: str) -> Task:
    task.config.task = name
    return task


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The documents of a file."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # other letters that end a line may stand in a text
        found = [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise StoreError(f"{file}: a line of it is not JSON ({error}).") from error
    if not found or not all(isinstance(one, dict) for one in found):
        raise StoreError(f"{file}: a JSON object per line is needed, and at least one.")
    return found


@contextmanager
def told_of(name: str, file: Path | None) -> Iterator[None]:
    """What goes wrong while a dataset is fetched, in a sentence."""
    try:
        yield
    except HqltError:
        raise
    except Exception as error:  # of the network, the hub, its cache, and of what the task does with its documents
        path = (load_yaml(file, resolve_func=False) if file else {}).get("dataset_path")
        dataset = f"dataset {path}" if path else "dataset"
        why = str(error).strip().split("\n")[0]
        raise StoreError(
            f"{name}: its {dataset} could not be loaded ({type(error).__name__}: {why}). Load it once where there is a "
            f"network, and take its cache along (HF_HOME); or put its documents into FOLDER/{name}.jsonl and say "
            "`local: FOLDER` (--local FOLDER)."
        ) from error


def config_of(task: Any) -> str:
    """A digest of how a task asks and scores: its settings, and the source of its class."""
    written = [made for made in type(task).__mro__ if made.__module__ != __name__]  # others are made above
    own = [getsource(made) for made in written if issubclass(made, ConfigurableTask) and made is not ConfigurableTask]
    return digest([json.loads(json.dumps(task.config.to_dict(), default=str, sort_keys=True)), own])
