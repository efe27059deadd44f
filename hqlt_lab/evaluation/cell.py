"""A trained cell under lm-eval: its answers are kept in its folder, each task as soon as it is done.

An exported model has no such folder: who asks it keeps the answers.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.errors import TrainingError
from hqlt_lab.evaluation.ask import Answered, Asked, Samples, Source, Told, ask
from hqlt_lab.experiment.cell import digest
from hqlt_lab.files import write
from hqlt_lab.train.harness_file import SAMPLES, Answer, add_answer, answers_in

if TYPE_CHECKING:
    from hqlt_lab.generation.text_model import TextModel


def ask_cell(folder: Path, asked: Asked, told: Told = lambda what, done, total: None) -> Answered:
    """What a cell answers; what it has answered before is read."""
    return ask(source_in(folder), asked, answers_in(folder), lambda *found: keep(folder, *found), told)


def source_in(folder: Path) -> Source:
    """The cell of a folder, which must have been trained, on a text."""
    from hqlt_lab.train.load import cell_in
    from hqlt_lab.train.outcome import read_outcome

    cell, outcome = cell_in(folder), read_outcome(folder)
    if outcome is None or outcome.status != "done":
        how = "has diverged" if outcome else "is not trained to its end yet"
        raise TrainingError(f"{folder}: the cell {how}, so there is nothing to evaluate.")
    if cell.task["name"] != "language":
        raise TrainingError(f"{folder}: the cell has learned {cell.task['name']!r}, and these tasks are about text.")
    return Source(cell.task["length"], lambda: loaded(folder))


def exported(folder: Path) -> Source:
    """A model that was written for others, which is loaded to know how long its training rows were."""
    model = loaded(folder)
    return Source(model.trained_length, lambda: model)


def loaded(folder: Path) -> "TextModel":
    from hqlt_lab.generation.text_model import text_model_in

    return text_model_in(folder)


def keep(folder: Path, answer: Answer, samples: Samples) -> None:
    """The documents first: an answer that is written down has its samples."""
    place = folder / SAMPLES
    place.mkdir(exist_ok=True)
    apart = digest([answer.lesion, answer.protocol.asked])[:8]
    file = place / f"{Path(answer.task).stem}.{apart}.jsonl"
    write(file, "".join(json.dumps(sample, default=str) + "\n" for sample in samples))
    add_answer(folder, replace(answer, samples=str(file.relative_to(folder))))
