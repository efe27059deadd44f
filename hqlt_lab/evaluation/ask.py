"""Tasks one after the other: what is known is not asked again, what is done is kept at once.

    answered = ask(source, asked, known, keep)

What stops one task (a dataset that cannot be loaded, a text that does not fit) is told in a sentence, and the others
are asked all the same.  Killed at any moment, the same call goes on with the tasks that are missing.
"""

import importlib.metadata
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.evaluation import single_tasks
from hqlt_lab.train.harness_file import Answer, Protocol

if TYPE_CHECKING:
    from hqlt_lab.generation.text_model import TextModel

Told = Callable[[str, int, int], None]  # what is asked, rows that are done, and how many there are
Samples = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a model is asked."""

    tasks: Sequence[str]  # names, sets among them
    length: int | None = None  # tokens of context; None: as trained
    limit: int | None = None  # documents per task; None: all
    local: Path | None = None  # where files stand for datasets
    batch_size: int = 16
    lesion: str | None = None  # the memory to silence, beside the intact model
    again: bool = False  # also what is known

    @property
    def single(self) -> list[str]:
        return single_tasks(self.tasks)


class Source:
    """A model that is loaded when the first question needs it."""

    def __init__(self, trained_length: int, load: "Callable[[], TextModel]") -> None:
        self.trained_length, self.load = trained_length, load

    @cached_property
    def text_model(self) -> "TextModel":
        return self.load()


class Question(NamedTuple):
    """One task, with or without a memory."""

    task: str
    lesion: str | None
    protocol: Protocol


@dataclass
class Answered:
    """What is known of a model afterwards."""

    answers: list[Answer] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)  # why some tasks have no answer
    new: bool = False  # whether anything was asked


def ask(
    source: Source,
    asked: Asked,
    known: Sequence[Answer] = (),
    keep: Callable[[Answer, Samples], None] = lambda answer, samples: None,
    told: Told = lambda what, done, total: None,
) -> Answered:
    """Every task that is not known, intact and lesioned."""
    found = Answered()
    for task in asked.single:
        for lesion in dict.fromkeys([None, asked.lesion]):
            try:
                question = Question(task, lesion, protocol_of(task, source, asked))
                before = [] if asked.again else [one for one in known if one.answers(*question)]
                answer = before[0] if before else put(question, source, asked, keep, told)
                found.new = found.new or not before
                found.answers.append(answer)
            except HqltError as error:
                found.troubles.append(str(error))
    return found


def protocol_of(task: str, source: Source, asked: Asked) -> Protocol:
    """As much of it as is known before the task is loaded."""
    from hqlt_lab.evaluation.source import source_of

    version, length = importlib.metadata.version("lm_eval"), asked.length or source.trained_length
    return Protocol(harness=version, length=length, limit=asked.limit, source=source_of(task, asked.local))


def put(
    question: Question, source: Source, asked: Asked, keep: Callable[[Answer, Samples], None], told: Told
) -> Answer:
    """Put one question to the model."""
    from hqlt_lab.evaluation.harness_model import HarnessModel
    from hqlt_lab.evaluation.run import run_task
    from hqlt_lab.model.lesions import lesion

    text_model, name = source.text_model, question.task
    what = f"{name} without {question.lesion}" if question.lesion else name
    model = HarnessModel(
        text_model, question.protocol.length, asked.batch_size, lambda done, total: told(what, done, total)
    )
    with lesion(text_model.model, question.lesion) if question.lesion else nullcontext():
        found = run_task(model, name, asked.local, question.protocol)
    answer = Answer(
        task=name,
        lesion=question.lesion,
        protocol=found.protocol,
        metrics=found.metrics,
        errors=found.errors,
        truncated=found.truncated,
    )
    keep(answer, found.samples)
    return answer


def beyond(length: int | None, trained: int) -> list[str]:
    """A sentence where a context is longer than any in training."""
    if length is None or length <= trained:
        return []
    return [f"length: {length} tokens of context are more than the {trained} of training: this measures extrapolation."]
