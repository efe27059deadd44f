"""Language models under lm-eval: a trained cell, all that a file reports, or an exported model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS, catch_up, tracker_of
from hqlt_lab.api.trained import chosen_folders, folder_of
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.evaluation import EvaluateConfig
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.hugging_face.folder import is_export

if TYPE_CHECKING:
    from hqlt_lab.study.harness import Judged, Told


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """What language models answered."""

    models: "list[Judged]"
    tasks: list[str]  # as they were asked for, sets among them
    untracked: str | None = None  # what MLflow does not have yet

    @property
    def troubles(self) -> list[str]:
        """Why some tasks have no answer."""
        return list(dict.fromkeys(trouble for model in self.models for trouble in model.troubles))


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
    change: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = RUNS,
    tracking: str | None = None,
    told: "Told | None" = None,
) -> TaskEvaluation:
    """Ask tasks of lm-eval; what was answered before is remembered.  Of a file, what it says under `evaluate`.

    `target` is a cell, an experiment file (all cells that its report shows) or a folder that `hqlt export` made.
    """
    from hqlt_lab.study.harness import asked_by, judge_cell, judge_cells, judge_export
    from hqlt_lab.track.courier import send_evaluations

    file = Path(target).suffix in (".yaml", ".yml")
    experiment = load_experiment(target, change) if file else None
    said = experiment.evaluate if experiment else None
    given = {
        "tasks": list(tasks),
        "length": length,
        "limit": limit,
        "batch_size": batch_size,
        "local": local and str(local),
    }
    config = configured(said, {name: value for name, value in given.items() if value})
    asked = asked_by(config, lesion=lesion, again=again)
    if experiment:
        models = judge_cells(chosen_folders(experiment, runs, only), asked, told)
        new = any(model.new for model in models)
        behind = catch_up(target, change=change, runs=runs, tracking=tracking) if new else None
        return TaskEvaluation(models=models, tasks=config.tasks, untracked=behind)
    if is_export(target):
        return TaskEvaluation(models=[judge_export(Path(target), asked, told)], tasks=config.tasks)
    folder = folder_of(target, runs)
    model = judge_cell(folder, asked, told)
    behind = send_evaluations(tracker_of(runs, tracking), folder) if model.new else None
    return TaskEvaluation(models=[model], tasks=config.tasks, untracked=behind)


def configured(said: EvaluateConfig | None, given: dict[str, object]) -> EvaluateConfig:
    """What the file says, changed by what was asked for."""
    from hqlt_lab.experiment.evaluation import evaluation_of

    whole = {**(vars(said) if said else {}), **given}
    if "tasks" not in whole:
        raise ConfigError("tasks: which? Name sets (general, retrieval) or tasks of lm-eval.")
    made = evaluation_of(whole)
    assert made is not None
    return made
