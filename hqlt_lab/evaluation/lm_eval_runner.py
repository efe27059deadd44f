"""Run lm-eval tasks on a trained cell or an exported model, reusing known results.

    results = run_tasks(lazy_model, request, known_results, save_result)

An error in one task (a dataset that cannot be loaded, a text that does not fit) is recorded, and the other tasks are
still run.  Each result is saved as soon as its task is finished: after a kill, the same call runs only the missing
tasks.

Results of a cell are saved in its folder.  An exported model has no such folder, so its caller saves the results.
"""

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.experiment.lm_eval_section import expand_task_sets
from hqlt_lab.files import write_atomic
from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir.lm_eval_results import SAMPLES_DIR, EvalProtocol, TaskResult, add_task_result, read_task_results

if TYPE_CHECKING:
    from hqlt_lab.generation.text_model import TextModel


TaskProgressCallback = Callable[[str, int, int], None]  # task, finished rows, total rows
TaskSamples = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class LmEvalRequest:
    """The tasks to run and their settings."""

    tasks: Sequence[str]  # names of tasks and of task sets
    length: int | None = None  # tokens of context; None: as in training
    limit: int | None = None  # documents per task; None: all
    local: Path | None = None  # folder of files that replace datasets
    batch_size: int = 16
    lesion: str | None = None  # also evaluate without this memory
    again: bool = False  # ignore known results

    @property
    def expanded_tasks(self) -> list[str]:
        return expand_task_sets(self.tasks)


class LazyTextModel:
    """A text model that is loaded when it is first used."""

    def __init__(self, trained_length: int, loader: "Callable[[], TextModel]") -> None:
        self.trained_length, self.loader = trained_length, loader

    @cached_property
    def text_model(self) -> "TextModel":
        return self.loader()


class TaskRequest(NamedTuple):
    """One task, with the intact or a lesioned model."""

    task: str
    lesion: str | None
    protocol: EvalProtocol


@dataclass
class LmEvalResults:
    """Results and errors of all requested tasks."""

    task_results: list[TaskResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # error messages of tasks without a result
    has_new_results: bool = False  # whether any task was run


def run_tasks(
    lazy_model: LazyTextModel,
    request: LmEvalRequest,
    known_results: Sequence[TaskResult] = (),
    save_result: Callable[[TaskResult, TaskSamples], None] = lambda result, samples: None,
    on_progress: TaskProgressCallback = lambda task, done, total: None,
) -> LmEvalResults:
    """Return the results of all requested tasks, running those that are not known."""
    results = LmEvalResults()
    for task in request.expanded_tasks:
        for lesion in dict.fromkeys([None, request.lesion]):
            try:
                task_request = TaskRequest(task, lesion, make_protocol(task, lazy_model, request))
                known = [] if request.again else [x for x in known_results if x.matches_request(*task_request)]
                if known:
                    results.task_results.append(known[0])
                else:
                    result = run_one_task(task_request, lazy_model, request, save_result, on_progress)
                    results.task_results.append(result)
                    results.has_new_results = True
            except HqltError as error:
                results.failures.append(str(error))
    return results


def make_protocol(task: str, lazy_model: LazyTextModel, request: LmEvalRequest) -> EvalProtocol:
    """Return the part of the protocol that is known before the task is loaded."""
    from hqlt_lab.evaluation.local_datasets import source_digest

    version, length = importlib.metadata.version("lm_eval"), request.length or lazy_model.trained_length
    return EvalProtocol(harness=version, length=length, limit=request.limit, source=source_digest(task, request.local))


def run_one_task(
    task_request: TaskRequest,
    lazy_model: LazyTextModel,
    request: LmEvalRequest,
    save_result: Callable[[TaskResult, TaskSamples], None],
    on_progress: TaskProgressCallback,
) -> TaskResult:
    """Run one task, save its result and return it."""
    from hqlt_lab.evaluation.lm_eval_model import LmEvalModel
    from hqlt_lab.evaluation.run_lm_eval_task import evaluate_task
    from hqlt_lab.model.analysis.lesions import lesion

    text_model, name = lazy_model.text_model, task_request.task
    label = f"{name} without {task_request.lesion}" if task_request.lesion else name
    length, report_rows = task_request.protocol.length, partial(on_progress, label)
    model = LmEvalModel(text_model, length, request.batch_size, report_rows)
    with lesion(text_model.model, task_request.lesion) if task_request.lesion else nullcontext():
        output = evaluate_task(model, name, request.local, task_request.protocol)
    result = TaskResult(
        task=name,
        lesion=task_request.lesion,
        protocol=output.protocol,
        metrics=output.metrics,
        errors=output.standard_errors,
        truncated=output.num_truncated,
    )
    save_result(result, output.samples)
    return result


def extrapolation_warnings(length: int | None, trained_length: int) -> list[str]:
    """Return a warning if the context is longer than in training."""
    if length is None or length <= trained_length:
        return []
    return [
        f"length: the context of {length} tokens is longer than the training length of {trained_length}: this measures "
        "extrapolation."
    ]


def run_cell_tasks(
    folder: Path, request: LmEvalRequest, on_progress: TaskProgressCallback = lambda task, done, total: None
) -> LmEvalResults:
    """Run tasks on a trained cell, reusing and saving the results in its folder."""
    return run_tasks(
        open_cell_model(folder),
        request,
        read_task_results(folder),
        partial(save_cell_result, folder),
        on_progress,
    )


def open_cell_model(folder: Path) -> LazyTextModel:
    """Return the model of a cell.  Raise `TrainingError` unless it finished training on the language task."""
    from hqlt_lab.rundir.cell_file import read_cell
    from hqlt_lab.rundir.outcome import read_outcome

    cell, outcome = read_cell(folder), read_outcome(folder)
    if outcome is None or outcome.status != "done":
        state = "has diverged" if outcome else "has not finished training"
        raise TrainingError(f"{folder}: the cell {state}, so it cannot be evaluated.")
    if cell.task["name"] != "language":
        raise TrainingError(f"{folder}: the cell was trained on {cell.task['name']!r}, but these tasks need text.")
    return LazyTextModel(cell.task["length"], lambda: load_model(folder))


def open_exported_model(folder: Path) -> LazyTextModel:
    """Return an exported model, which is loaded at once to read its training length."""
    model = load_model(folder)
    return LazyTextModel(model.trained_length, lambda: model)


def load_model(folder: Path) -> "TextModel":
    from hqlt_lab.generation.text_model import load_text_model

    return load_text_model(folder)


def save_cell_result(folder: Path, result: TaskResult, samples: TaskSamples) -> None:
    """Save the samples and then the result, so that every saved result has its samples."""
    samples_folder = folder / SAMPLES_DIR
    samples_folder.mkdir(exist_ok=True)
    request_hash = hash_json([result.lesion, result.protocol.request_key])[:8]
    file = samples_folder / f"{Path(result.task).stem}.{request_hash}.jsonl"
    write_atomic(file, "".join(json.dumps(sample, default=str) + "\n" for sample in samples))
    add_task_result(folder, replace(result, samples=str(file.relative_to(folder))))
