"""Run lm-eval tasks on the reported cells of a study, or on an exported model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hqlt_lab.errors import HqltError
from hqlt_lab.evaluation.lm_eval_runner import (
    LmEvalRequest,
    LmEvalResults,
    extrapolation_warnings,
    open_cell_model,
    open_exported_model,
    run_cell_tasks,
    run_tasks,
)
from hqlt_lab.experiment.lm_eval_section import EvaluateConfig
from hqlt_lab.rundir.lm_eval_results import Protocols, collect_metric_values

TaskProgressCallback = Callable[[str, int, int], None]  # (task title, finished rows, total rows)


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """lm-eval results of one model."""

    arm: str
    seed: int
    folder: Path
    metrics: dict[str, float] = field(default_factory=dict)  # eval/piqa/acc, without_fw/eval/piqa/acc, ...
    protocols: dict[str, Protocols] = field(default_factory=dict)  # by metric
    truncated: dict[str, int] = field(default_factory=dict)  # task -> number of inputs longer than the context
    failures: tuple[str, ...] = ()  # why some tasks have no result
    remarks: tuple[str, ...] = ()
    new: bool = False  # whether anything was computed


def make_model_result(
    arm: str, seed: int, folder: Path, results: LmEvalResults, remarks: Sequence[str] = ()
) -> ModelResult:
    """Convert lm-eval results of one model to the form that tables use."""
    values = collect_metric_values(results.task_results)
    return ModelResult(
        arm=arm,
        seed=seed,
        folder=folder,
        metrics={name: value.value for name, value in values.items()},
        protocols={name: value.protocols for name, value in values.items()},
        truncated={result.task: result.truncated for result in results.task_results if result.truncated},
        failures=tuple(dict.fromkeys(results.failures)),
        remarks=tuple(remarks),
        new=results.has_new_results,
    )


def evaluate_cells_on_tasks(
    folders: Sequence[Path], request: LmEvalRequest, on_progress: TaskProgressCallback | None = None
) -> list[ModelResult]:
    """Evaluate the cells one after another.  A cell that cannot be evaluated gets the reason in `failures`."""
    return [
        evaluate_cell_on_tasks(folder, request, on_progress, f"{number + 1}/{len(folders)} ")
        for number, folder in enumerate(folders)
    ]


def evaluate_cell_on_tasks(
    folder: Path, request: LmEvalRequest, on_progress: TaskProgressCallback | None = None, title_prefix: str = ""
) -> ModelResult:
    """Run the requested lm-eval tasks on one cell; errors are returned in `failures`."""
    from hqlt_lab.rundir.cell_file import read_cell

    cell = read_cell(folder)
    title = f"{title_prefix}{cell.arm}, seed {cell.seed}"

    def report_progress(task: str, done: int, total: int) -> None:
        if on_progress:
            on_progress(f"{title}: {task}", done, total)

    try:
        remarks = extrapolation_warnings(request.length, open_cell_model(folder).trained_length)
        results = run_cell_tasks(folder, request, report_progress)
        return make_model_result(cell.arm, cell.seed, folder, results, remarks)
    except HqltError as error:
        return ModelResult(arm=cell.arm, seed=cell.seed, folder=folder, failures=(f"{cell.arm}: {error}",))


def evaluate_export_on_tasks(
    folder: Path, request: LmEvalRequest, on_progress: TaskProgressCallback | None = None
) -> ModelResult:
    """Evaluate an exported model.  Its results are not stored."""
    source = open_exported_model(folder)
    results = run_tasks(source, request, on_progress=on_progress or (lambda task, done, total: None))
    remarks = extrapolation_warnings(request.length, source.trained_length)
    return make_model_result(folder.name, 0, folder, results, remarks)


def request_from_config(config: EvaluateConfig, **overrides: object) -> LmEvalRequest:
    """Return the request of the `evaluate` section of an experiment file."""
    options = {
        "tasks": config.tasks,
        "length": config.length,
        "limit": config.limit,
        "local": Path(config.local) if config.local else None,
        "batch_size": config.batch_size,
    }
    return LmEvalRequest(**(options | overrides))  # type: ignore[arg-type]
