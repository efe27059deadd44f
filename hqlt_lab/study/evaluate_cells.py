"""Evaluate trained cells again: their scores, also with one memory ablated, probes, and long-context curves."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.registry import find_factory
from hqlt_lab.rundir.code_hashes import read_code_hashes
from hqlt_lab.rundir.diagnostics import ProbeTable
from hqlt_lab.rundir.evaluations import (
    Evaluations,
    LongContextCurve,
    evaluation_name,
    read_long_context_curves,
    write_long_context_curves,
)
from hqlt_lab.study.ledger.cell_record import find_changed_sources

if TYPE_CHECKING:
    from hqlt_lab.train.cell_evaluator import CellEvaluator, Split

CellProgressCallback = Callable[[int, int], None]  # (evaluated cells, total cells)


@dataclass(frozen=True, kw_only=True)
class CellEvalRequest:
    """Options of an evaluation, the same for every cell."""

    split: "Split" = "test"
    lesion: str | None = None  # the memory to ablate, in addition to the intact model
    probe: bool = False  # whether to probe the memories
    long: int | None = None  # evaluate at up to this many times the training length; None: not at all
    ruler: bool = False  # whether to evaluate on RULER's tasks
    again: bool = False  # recompute stored results

    @property
    def evaluation_names(self) -> list[str]:
        """Names of the evaluations, such as "test" and "test without fw"."""
        return [evaluation_name(self.split, memory) for memory in dict.fromkeys([None, self.lesion])]


@dataclass(frozen=True, kw_only=True)
class CellEvaluation:
    """Results of one cell."""

    arm: str
    seed: int
    folder: Path
    scores: Evaluations = field(default_factory=dict)  # "test without fw" -> metrics
    probes: ProbeTable | None = None
    curves: list[LongContextCurve] = field(default_factory=list)  # beyond the training length
    skipped: str = ""  # why it was not evaluated
    new: bool = False  # whether anything was computed


def evaluate_cells(
    folders: Sequence[Path], request: CellEvalRequest, on_progress: CellProgressCallback | None = None
) -> list[CellEvaluation]:
    """Evaluate the cells one after another.  A cell that cannot be evaluated gets the reason in `skipped`."""
    from hqlt_lab.rundir.cell_file import read_cell

    evaluations = []
    for number, folder in enumerate(folders):
        if on_progress:
            on_progress(number, len(folders))
        try:
            evaluations.append(evaluate_cell(folder, request))
        except (ConfigError, TrainingError) as error:
            cell = read_cell(folder)
            evaluations.append(
                CellEvaluation(arm=cell.arm, seed=cell.seed, folder=folder, skipped=f"{cell.arm}: {error}")
            )
    if on_progress:
        on_progress(len(folders), len(folders))
    return evaluations


def describe_changed_components(evaluations: Sequence[CellEvaluation]) -> list[str]:
    """Return a warning if components have changed since the cells were trained."""
    code_hashes = (read_code_hashes(evaluation.folder) for evaluation in evaluations)
    names = dict.fromkeys(name for code in code_hashes for name in find_changed_sources(code) if name != "lab")
    if not names:
        return []
    return [f"{', '.join(names)}: changed since these cells were trained, so old weights were evaluated with new code."]


def evaluate_cell(folder: Path, request: CellEvalRequest) -> CellEvaluation:
    """Evaluate one cell; raise if the request does not apply to it."""
    from hqlt_lab.train.cell_evaluator import CellEvaluator

    evaluator = CellEvaluator(folder)
    if request.lesion:
        evaluator.check_lesion(request.lesion)  # raise before the intact model is scored
    scores = {
        evaluation_name(request.split, lesion): evaluator.score_split(request.split, lesion, request.again)
        for lesion in dict.fromkeys([None, request.lesion])
    }
    probes = evaluator.probe_memories(request.split) if request.probe else None
    curves = long_context_curves(evaluator, request.long, request.again) if request.long is not None else []
    curves += ruler_curves(evaluator, request.long or 1, request.again) if request.ruler else []
    return CellEvaluation(
        arm=evaluator.cell.arm,
        seed=evaluator.cell.seed,
        folder=folder,
        scores=scores,
        probes=probes,
        curves=curves,
        new=evaluator.has_computed,
    )


def long_context_curves(evaluator: "CellEvaluator", max_factor: int, again: bool) -> list[LongContextCurve]:
    """Return the stored long-context curves up to this factor, or measure them."""
    from hqlt_lab.evaluation.long_context_evaluation import LongContextEval
    from hqlt_lab.train.trainer import silence_lightning

    if evaluator.cell.agent:
        raise TrainingError(
            f"{evaluator.folder}: {evaluator.cell.task['name']!r} is an environment, which has no long-context "
            "evaluation."
        )
    stored = read_other_curves(evaluator.folder)
    if stored and not again and all(curve.length_factor == max_factor for curve in stored):
        return stored
    trainer, module = evaluator.restore()
    with silence_lightning(), trainer.precision_plugin.val_step_context():
        evaluation = LongContextEval(
            module.model,  # type: ignore[arg-type]
            module.task,
            max_factor,
            evaluator.cell.train.eval_batch_size,
        )
        write_long_context_curves(evaluator.folder, evaluation.measure_curves())
    evaluator.has_computed = True
    return read_other_curves(evaluator.folder)


def read_other_curves(folder: Path) -> list[LongContextCurve]:
    """Return the stored long-context curves without those of RULER."""
    return [curve for curve in read_long_context_curves(folder) if not curve.is_ruler]


def ruler_curves(evaluator: "CellEvaluator", max_factor: int, again: bool) -> list[LongContextCurve]:
    """Return the stored curves of RULER up to this multiple of the training length, or measure them."""
    from hqlt_lab.evaluation.ruler_evaluation import RulerEval
    from hqlt_lab.train.trainer import silence_lightning

    stored = [curve for curve in read_long_context_curves(evaluator.folder) if curve.is_ruler]
    if stored and not again and all(curve.length_factor == max_factor for curve in stored):
        return stored
    task = evaluator.cell.task["name"]
    if not RulerEval.can_evaluate(find_factory("task", task)):
        raise TrainingError(
            f"{evaluator.folder}: RULER evaluates language models, but the cell was trained on {task!r}."
        )
    trainer, module = evaluator.restore()
    with silence_lightning(), trainer.precision_plugin.val_step_context():
        evaluation = RulerEval.for_language_task(module.model, module.task, evaluator.folder.name)  # type: ignore[arg-type]
        curves = list(evaluation.measure_curves(max_factor, evaluator.cell.train.eval_batch_size))
    if not curves:
        raise TrainingError(
            f"{evaluator.folder}: {max_factor * evaluation.model.trained_length} tokens are too few for RULER's "
            "prompts. Use a larger --long."
        )
    write_long_context_curves(evaluator.folder, curves)
    evaluator.has_computed = True
    return [curve for curve in read_long_context_curves(evaluator.folder) if curve.is_ruler]


def median_scores(evaluations: Sequence[CellEvaluation], metric: str) -> dict[str, float]:
    """Return the median of a metric over the seeds of one arm, by the name of the evaluation."""
    values_by_name: dict[str, list[float]] = {}
    for evaluation in evaluations:
        for name, scores in evaluation.scores.items():
            values_by_name.setdefault(name, []).extend([scores[metric]] if metric in scores else [])
    return {name: statistics.median(values) for name, values in values_by_name.items() if values}
