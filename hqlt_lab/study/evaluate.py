"""Trained cells, asked again one after the other: what they score, whole and with one memory silent."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.study.sources import noted
from hqlt_lab.study.standing import changed
from hqlt_lab.train.evaluations import Evaluations, name_of
from hqlt_lab.train.long_context_file import Curve, curves_in, write_curves
from hqlt_lab.train.probe_file import ProbeTable

if TYPE_CHECKING:
    from hqlt_lab.train.evaluate import Examination, Split

Told = Callable[[int, int], None]  # cells that are done, and how many there are


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of every cell."""

    split: "Split" = "test"
    lesion: str | None = None  # the memory to silence, beside the intact model
    probe: bool = False  # whether to look into the memories too
    long: int | None = None  # how many times further than in training to go; None: no further
    again: bool = False  # also what was asked before

    @property
    def names(self) -> list[str]:
        """Of the evaluations."""
        return [name_of(self.split, memory) for memory in dict.fromkeys([None, self.lesion])]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One cell's answer."""

    arm: str
    seed: int
    folder: Path
    scores: Evaluations = field(default_factory=dict)  # "test without fw" -> metrics
    probes: ProbeTable | None = None
    curves: list[Curve] = field(default_factory=list)  # beyond what was trained
    skipped: str = ""  # why it was not asked
    new: bool = False  # whether anything was computed


def evaluate_cells(folders: Sequence[Path], question: Question, told: Told | None = None) -> list[Evaluated]:
    """Each in turn; one that cannot be asked is passed over, with a sentence."""
    from hqlt_lab.train.load import cell_in

    answers = []
    for number, folder in enumerate(folders):
        if told:
            told(number, len(folders))
        try:
            answers.append(evaluate_cell(folder, question))
        except (ConfigError, TrainingError) as error:
            cell = cell_in(folder)
            answers.append(Evaluated(arm=cell.arm, seed=cell.seed, folder=folder, skipped=f"{cell.arm}: {error}"))
    if told:
        told(len(folders), len(folders))
    return answers


def other_parts(answers: Sequence[Evaluated]) -> list[str]:
    """A sentence, if parts are others today than those that the cells were trained with."""
    names = dict.fromkeys(name for one in answers for name in changed(noted(one.folder)) if name != "lab")
    if not names:
        return []
    return [f"{', '.join(names)}: changed since these cells were trained, and old weights were asked in new code."]


def evaluate_cell(folder: Path, question: Question) -> Evaluated:
    """One cell's answer; what cannot be asked of it is an error."""
    from hqlt_lab.train.evaluate import Examination

    asked = Examination(folder)
    if question.lesion:
        asked.check(question.lesion)  # before the intact model is scored for nothing
    lesions = dict.fromkeys([None, question.lesion])
    scores = {
        name_of(question.split, memory): asked.score(question.split, memory, question.again) for memory in lesions
    }
    probes = asked.probe(question.split) if question.probe else None
    curves = curves_of(asked, question.long, question.again) if question.long is not None else []
    cell = asked.cell
    return Evaluated(
        arm=cell.arm, seed=cell.seed, folder=folder, scores=scores, probes=probes, curves=curves, new=asked.asked
    )


def curves_of(asked: "Examination", times: int, again: bool) -> list[Curve]:
    """What is known of it so far beyond what was trained, or what is measured now."""
    from hqlt_lab.evaluation.long_context import Stretch
    from hqlt_lab.train.trainer import quiet

    if asked.cell.agent:
        raise TrainingError(
            f"{asked.folder}: {asked.cell.task['name']!r} is a world, in which nothing can be made longer."
        )
    known = curves_in(asked.folder)
    if known and not again and all(curve.times == times for curve in known):
        return known
    trainer, learner = asked.brought_back()
    model = learner.model.eval()
    with quiet(), trainer.precision_plugin.val_step_context():
        stretch = Stretch(model, learner.task, times, asked.cell.train.eval_batch_size)  # type: ignore[arg-type]
        write_curves(asked.folder, stretch.curves())
    asked.asked = True
    return curves_in(asked.folder)


def medians(answers: Sequence[Evaluated], metric: str) -> dict[str, float]:
    """Of one arm's seeds, by the evaluation's name."""
    found: dict[str, list[float]] = {}
    for answer in answers:
        for name, scores in answer.scores.items():
            found.setdefault(name, []).extend([scores[metric]] if metric in scores else [])
    return {name: statistics.median(values) for name, values in found.items() if values}
