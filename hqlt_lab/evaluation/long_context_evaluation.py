"""Long-context evaluation: a trained model on longer sequences, more pairs and larger distances, and the cost.

    language        loss by position, needle accuracy by distance and by number of needles
    other tasks     accuracy along each axis on which the task can be made harder
    all             milliseconds and bytes of state per decoded token, by context length

Each is a curve up to `max_factor` times the training length.  Long texts are processed with the state, as in decoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.decoding_cost import measure_decoding_cost
from hqlt_lab.evaluation.needle_in_haystack import MAX_PAIRS, Haystack, needle_accuracy
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.evaluations import LongContextCurve
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks._length_scoring import geometric_range
from hqlt_lab.tasks.text.language import Language
from hqlt_lab.train.scoring import score_model

MAX_TEST_ROWS = 64  # maximum number of examples of a test


@dataclass(frozen=True)
class LongContextEval:
    """Evaluates a trained model on its task at up to `max_factor` times the training length."""

    model: SequenceModel
    task: Task
    max_factor: int = 8
    batch_size: int = 16  # rows at the training length; longer sequences are evaluated in smaller batches

    def __post_init__(self) -> None:
        if self.max_factor < 1:
            message = f"a multiple of the training length is needed, 1 or more; got {self.max_factor}."
            raise ConfigError.at("long", "below_minimum", message)

    def measure_curves(self) -> Iterator[LongContextCurve]:
        """Yield each curve as soon as it is measured."""
        return (replace(curve, length_factor=self.max_factor) for curve in self.iter_curves())

    def iter_curves(self) -> Iterator[LongContextCurve]:
        if isinstance(self.task, Language):
            yield self.loss_by_position(self.task)
            yield from self.needle_curves(self.task)
        else:
            yield from self.accuracy_curves()
        yield from measure_decoding_cost(
            self.model, [self.task.sequence_length("train") * factor for factor in geometric_range(self.max_factor)]
        )

    def loss_by_position(self, task: Language) -> LongContextCurve:
        """Measure the loss by position, also beyond the training length if the test text is long enough."""
        factors = geometric_range(self.max_factor)
        length_factor = max(x for x in factors if x == 1 or task.corpus.num_windows("test", task.length * x))
        length = task.length * length_factor
        num_windows = task.corpus.num_windows("test", length)
        longer = replace(task, length=length, eval_size=max(min(num_windows, MAX_TEST_ROWS // length_factor), 1))
        metrics = score_model(self.model, longer, "test", self.rows_per_batch(length_factor)).metrics
        points = [(high + 1, metrics[f"loss/position_{low}_{high}"]) for low, high in longer.position_buckets]
        return LongContextCurve(name="loss", axis="position", points=points, trained=task.length)

    def needle_curves(self, task: Language) -> Iterator[LongContextCurve]:
        """Measure the needle accuracy by distance, and by the number of needles at half the training length."""
        distances = [task.length * factor // 4 for factor in geometric_range(4 * self.max_factor)]
        haystack = Haystack(task.corpus, task.length)
        by_distance = [(distance, self.score_needles(haystack, distance, 1)) for distance in distances]
        yield LongContextCurve(name="needle", axis="distance", points=by_distance, trained=task.length)
        distance = task.length // 2
        by_pairs = [(pairs, self.score_needles(haystack, distance, pairs)) for pairs in geometric_range(MAX_PAIRS)]
        yield LongContextCurve(name="needle", axis="pairs", points=by_pairs)

    def score_needles(self, haystack: Haystack, distance: int, pairs: int) -> float:
        questions = haystack.make_questions(distance, pairs)
        length_factor = -(-len(questions[0].context) // haystack.length)
        return needle_accuracy(self.model, questions, self.rows_per_batch(length_factor))

    def accuracy_curves(self) -> Iterator[LongContextCurve]:
        """Measure the accuracy along each axis of extrapolation of the task."""
        tests = self.task.extrapolation_tests(self.max_factor)
        for axis in dict.fromkeys(test.axis for test in tests):
            points = []
            for _, value, task in (test for test in tests if test.axis == axis):
                length_factor = -(-task.sequence_length("test") // self.task.sequence_length("train"))
                small = replace(task, eval_size=min(task.eval_size, MAX_TEST_ROWS))
                metrics = score_model(self.model, small, "test", self.rows_per_batch(length_factor)).metrics
                points.append((value, metrics["accuracy"]))
            yield LongContextCurve(name="accuracy", axis=axis, points=points, trained=points[0][0])

    def rows_per_batch(self, length_factor: int) -> int:
        """Return the batch size for rows that are `length_factor` times longer than in training."""
        return max(self.batch_size // length_factor, 1)
