"""Evaluate language models on lm-eval tasks: a trained cell, the reported cells of a file, or an exported model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracking import DEFAULT_RUNS, resolve_tracking_store, sync_study
from hqlt_lab.api.trained_cells import find_cell_folder, require_reported_folders
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.lm_eval_section import EvaluateConfig
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.hugging_face.export_layout import is_export

if TYPE_CHECKING:
    from hqlt_lab.study.lm_eval_cells import ModelResult, TaskProgressCallback


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """Results of one or more language models on lm-eval tasks."""

    models: "list[ModelResult]"
    tasks: list[str]  # as requested; may be names of task sets
    sync_warning: str | None = None  # what could not be sent to MLflow yet, as a sentence; None: nothing is missing

    @property
    def failures(self) -> list[str]:
        """Reasons why some tasks have no result."""
        return list(dict.fromkeys(failure for model in self.models for failure in model.failures))


def evaluate_tasks(
    target: str | Path,
    tasks: Sequence[str] = (),
    *,
    length: int | None = None,
    limit: int | None = None,
    local: str | Path | None = None,
    batch_size: int | None = None,
    lesion: str | None = None,
    again: bool = False,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    on_progress: "TaskProgressCallback | None" = None,
) -> TaskEvaluation:
    """Evaluate on lm-eval tasks; stored results are reused unless `again`.

    `target` is a cell, an experiment file (all cells that its report shows) or a folder written by `hqlt export`.
    For a file, its section `evaluate` gives the defaults.
    """
    from hqlt_lab.study.lm_eval_cells import (
        evaluate_cell_on_tasks,
        evaluate_cells_on_tasks,
        evaluate_export_on_tasks,
        request_from_config,
    )
    from hqlt_lab.track.mlflow_sync import send_evaluations

    is_file = Path(target).suffix in (".yaml", ".yml")
    experiment = load_experiment(target, overrides) if is_file else None
    options = {
        "tasks": list(tasks),
        "length": length,
        "limit": limit,
        "batch_size": batch_size,
        "local": local and str(local),
    }
    config = merge_evaluate_config(
        experiment.evaluate if experiment else None, {name: value for name, value in options.items() if value}
    )
    request = request_from_config(config, lesion=lesion, again=again)
    if experiment:
        models = evaluate_cells_on_tasks(require_reported_folders(experiment, runs, only), request, on_progress)
        has_new = any(model.new for model in models)
        warning = sync_study(experiment, runs=runs, tracking=tracking) if has_new else None
        return TaskEvaluation(models=models, tasks=config.tasks, sync_warning=warning)
    if is_export(target):
        return TaskEvaluation(models=[evaluate_export_on_tasks(Path(target), request, on_progress)], tasks=config.tasks)
    folder = find_cell_folder(target, runs)
    model = evaluate_cell_on_tasks(folder, request, on_progress)
    warning = send_evaluations(resolve_tracking_store(runs, tracking), folder) if model.new else None
    return TaskEvaluation(models=[model], tasks=config.tasks, sync_warning=warning)


def merge_evaluate_config(file_config: EvaluateConfig | None, options: dict[str, object]) -> EvaluateConfig:
    """Return the `evaluate` section of the file, with these options replaced."""
    from hqlt_lab.experiment.lm_eval_section import parse_evaluate

    merged = {**(vars(file_config) if file_config else {}), **options}
    if "tasks" not in merged:
        message = "no tasks are named, and the file has no section evaluate."
        hint = "Name task sets (general, retrieval) or tasks of lm-eval."
        raise ConfigError.at("tasks", "missing_evaluation_tasks", message, hint)
    config = parse_evaluate(merged)
    assert config is not None
    return config
