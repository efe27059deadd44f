"""RULER: the percentage of answers that a language model generates to questions about long contexts.

    as many units as fit     template + units + tokens of the answer <= length, by the model's own tokenizer
    score                    the share of the references that occur in the greedy answer, ignoring case

The answer prefix is the end of the prompt.  Six tasks (`ruler_samples`), a curve over lengths each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from hqlt_lab.evaluation.ruler_samples import RULER_TASKS, RulerSample, write_sample
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_generation import generate
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.evaluations import RULER_PREFIX, LongContextCurve
from hqlt_lab.tasks._length_scoring import geometric_range
from hqlt_lab.tasks.text.language import Language

NUM_SAMPLES = 50  # questions per task and length
STEP_DOWN = 50  # a sample that is too long is written again with a fiftieth fewer units


@dataclass(frozen=True)
class RulerEval:
    """Evaluation of a language model on RULER's tasks."""

    model: TextModel
    num_samples: int = NUM_SAMPLES

    @staticmethod
    def can_evaluate(task_class: Any) -> bool:
        """Return whether models of a task read and write text."""
        return isinstance(task_class, type) and issubclass(task_class, Language)

    @classmethod
    def for_language_task(cls, model: SequenceModel, task: Language, name: str) -> Self:
        """Return the evaluation of a model that was trained on a language task."""
        tokenizer = task.corpus.tokenizer
        text_model = TextModel(
            model=model.eval(),
            tokenizer=tokenizer,
            separator=tokenizer.separator,
            vocabulary=tokenizer.vocabulary,
            trained_length=task.length,
            name=name,
            device=next(model.parameters()).device,
        )
        return cls(text_model)

    def measure_curves(self, max_factor: int, batch_size: int) -> Iterator[LongContextCurve]:
        """Yield a curve per task over contexts of 1, 2, 4, ... times the training length.

        Lengths into which the prompt of a task does not fit are left out.  `batch_size` holds for the training length.
        """
        trained = self.model.trained_length
        for name in RULER_TASKS:
            points = []
            for factor in geometric_range(max_factor):
                if samples := self.make_samples(name, trained * factor):
                    answers = self.answer(name, samples, max(batch_size // factor, 1))
                    points.append((trained * factor, score_answers(samples, answers)))
            if points:
                yield LongContextCurve(
                    name=f"{RULER_PREFIX}{name}",
                    axis="length",
                    points=points,
                    trained=trained,
                    length_factor=max_factor,
                )

    def make_samples(self, name: str, length: int) -> list[RulerSample]:
        """Return the samples of a task for contexts of this length; none if its shortest prompt is longer."""
        units = self.count_units(name, length)
        if units is None:
            return []
        samples = []
        for number in range(self.num_samples):
            size = units
            while not self.fits(name, size, length, number) and size > RULER_TASKS[name].min_units:
                size = max(size - max(units // STEP_DOWN, 1), RULER_TASKS[name].min_units)
            samples.append(write_sample(name, size, length, number))
        return samples

    def count_units(self, name: str, length: int) -> int | None:
        """Return the largest number of units with which the first sample fits, by bisection; None: it never does."""
        low, most = RULER_TASKS[name].min_units, RULER_TASKS[name].max_units
        if not self.fits(name, low, length, 0):
            return None
        high = low
        while high < most and self.fits(name, high, length, 0):
            low, high = high, min(2 * high, most)
        # invariant: `low` fits, and `high` does not unless it is the largest possible number
        if self.fits(name, high, length, 0):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(name, middle, length, 0) else (low, middle)
        return low

    def fits(self, name: str, units: int, length: int, number: int) -> bool:
        """Return whether a sample and its answer fit into a context of this length, with the separator in front."""
        sample = write_sample(name, units, length, number)
        num_tokens = 1 + len(self.model.encode(sample.prompt + sample.answer_prefix))
        return num_tokens + RULER_TASKS[name].prompt.answer_tokens <= length

    def answer(self, name: str, samples: Sequence[RulerSample], batch_size: int) -> list[str]:
        """Return the greedy answers to the samples of a task."""
        options = Sampling(tokens=RULER_TASKS[name].prompt.answer_tokens, temperature=0)
        prompts = [sample.prompt + sample.answer_prefix for sample in samples]
        return [result.text for result in generate(self.model, prompts, options, batch_size=batch_size)]


def score_answers(samples: Sequence[RulerSample], answers: Sequence[str]) -> float:
    """Return the mean percentage of the references of a sample that occur in its answer, ignoring case."""
    shares = [
        sum(reference.casefold() in answer.casefold() for reference in sample.references) / len(sample.references)
        for sample, answer in zip(samples, answers, strict=True)
    ]
    return 100 * sum(shares) / len(shares)
