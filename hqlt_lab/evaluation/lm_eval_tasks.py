"""Load tasks by name: those of lm-eval, those of this package, or a user's file, on hub datasets or local files.

    load_tasks("piqa", None, model)                 as lm-eval loads it
    load_tasks("piqa", Path("data/eval"), model)    with lm-eval's prompts and metrics on data/eval/piqa.jsonl
    load_tasks("my_task.yaml", None, model)         any task file in lm-eval's format

A local file has one document per line, with the fields of the dataset it replaces.
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

from hqlt_lab.errors import ConfigError, HqltError, StoreError, format_names
from hqlt_lab.evaluation.lm_eval_task_variants import FdaOriginal, SquadNewline
from hqlt_lab.evaluation.local_datasets import local_dataset_file
from hqlt_lab.experiment.lm_eval_section import OWN_TASKS, find_task_definition, is_task_file
from hqlt_lab.files import decode_json
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.hashing import hash_json

TaskDict = dict[str, Any]  # argument of lm-eval's `evaluate`: {"tasks": {name: task}, "groups": {...}}


class AnySplitDataset(dict[str, Any]):
    """A dataset that returns the same documents for every split.  Zero-shot tasks read only one split."""

    def __init__(self, documents: Any) -> None:
        super().__init__()
        self.documents = documents

    def __missing__(self, split: str) -> Any:
        return self.documents


def load_tasks(name: str, local_folder: Path | None, text_model: TextModel) -> TaskDict:
    """Load the task of this name, or all tasks of a group, with their documents."""
    file = find_task_file(name)
    if local_folder is not None and not is_task_file(name):
        return {"tasks": {name: load_local_task(name, local_dataset_file(name, local_folder), text_model)}}
    with translate_load_errors(name, file):
        if file is None:
            return {"tasks": {name: set_task_name(own_task_class(name, text_model)(), name)}}
        manager = TaskManager(include_path=[file.parent], include_defaults=False)
        return dict(manager.load(str(file) if is_task_file(name) else name))


def find_task_file(name: str) -> Path | None:
    """Return the YAML file that defines a task, or None for a task defined in this package."""
    if name in OWN_TASKS:
        return None
    file = Path(name) if is_task_file(name) else find_task_definition(name)
    if file is None or not file.is_file():
        raise ConfigError.at("tasks", "unknown_evaluation_task", f"no task is called {name!r}.")
    return file


def own_task_class(name: str, text_model: TextModel) -> type[Task]:
    """Return the class of a task defined in this package, with the text model if it needs the tokenizer."""
    return SquadNewline if name == "squad_newline" else derive_class(FdaOriginal, text_model=text_model)


def load_local_task(name: str, file: Path, text_model: TextModel) -> Task:
    """Load a task with its usual prompts and metrics on the documents of a local file."""
    from datasets import Dataset

    task_file = find_task_file(name)
    config = load_yaml(task_file) if task_file else {"class": own_task_class(name, text_model)}
    if "group" in config or not isinstance(config.get("task", name), str):
        message = f"{name!r} is a group with several datasets, for which local files cannot be used."
        raise ConfigError.at("tasks", "group_with_local_files", message, "Name its tasks one by one.")
    if config.get("num_fewshot"):
        message = f"{name!r} uses few-shot examples, which local files do not contain."
        raise ConfigError.at("tasks", "few_shot_with_local_files", message)
    documents = Dataset.from_list(read_documents(file))
    base = config.pop("class", ConfigurableTask)
    task_class = derive_class(base, download=lambda self, *_, **__: set_documents(self, documents))
    settings = {key: value for key, value in config.items() if key not in ("tag", "task_list")}
    try:
        return set_task_name(task_class(config=settings) if base is ConfigurableTask else task_class(), name)
    except Exception as error:  # prompt templates raise various errors if a field is missing
        fields = format_names(documents.column_names)
        raise StoreError(
            f"{file}: these documents do not fit task {name} ({type(error).__name__}: {error}). They have the fields "
            f"{fields}; the fields of the task's dataset are needed."
        ) from error


def derive_class(base: type[Task], **attributes: Any) -> Any:
    """Return a subclass with the same name and these class attributes."""
    return type(base.__name__, (base,), {"__module__": __name__, **attributes})


def set_documents(task: Any, documents: Any) -> None:
    task.dataset = AnySplitDataset(documents)


def set_task_name(task: Any, name: str) -> Task:
    task.config.task = name
    return task


def read_documents(file: Path) -> list[dict[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # not splitlines: a text may contain other line separators
        documents = [decode_json(line, dict, allow_nan=True) for line in lines if line.strip()]
    except ValueError as error:
        raise StoreError(f"{file}: a line is not a JSON object ({error}).") from error
    if not documents:
        raise StoreError(f"{file}: the file is empty; at least one JSON object is needed, one per line.")
    return documents


@contextmanager
def translate_load_errors(name: str, file: Path | None) -> Iterator[None]:
    """Convert errors of loading a dataset to `StoreError`."""
    try:
        yield
    except HqltError:
        raise
    except Exception as error:  # from the network, the hub, its cache, or the task's preprocessing
        path = (load_yaml(file, resolve_func=False) if file else {}).get("dataset_path")
        dataset = f"dataset {path}" if path else "dataset"
        reason = str(error).strip().split("\n")[0]
        raise StoreError(
            f"{name}: its {dataset} could not be loaded ({type(error).__name__}: {reason}). Download it on a machine "
            f"with network access and copy the cache (HF_HOME); or put its documents into FOLDER/{name}.jsonl and set "
            "`local: FOLDER` (--local FOLDER)."
        ) from error


def hash_task_config(task: Any) -> str:
    """Hash the settings of a task and the source code of its class."""
    classes = [base for base in type(task).__mro__ if base.__module__ != __name__]  # without those of `derive_class`
    custom = [base for base in classes if issubclass(base, ConfigurableTask) and base is not ConfigurableTask]
    settings = json.loads(json.dumps(task.config.to_dict(), default=str, sort_keys=True))
    return hash_json([settings, [getsource(base) for base in custom]])
