"""Beyond what was trained: a cell's model on longer text, more pairs, larger distances, and what that costs.

    language        loss by place in the text, needles by distance and by their number
    other tasks     accuracy along each side on which the task can be made harder
    all             milliseconds and bytes of state per decoded token, by context

Each is a curve up to `times` as far as training went.  The model reads on with its state, as in decoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.needle import MOST_PAIRS, Haystack, found_needles
from hqlt_lab.evaluation.token_cost import token_cost
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks._lengths import doubling
from hqlt_lab.tasks.language import Language
from hqlt_lab.train.long_context_file import Curve
from hqlt_lab.train.score import score

ROWS = 64  # examples of a test, at most


@dataclass(frozen=True)
class Stretch:
    """A trained model, what it was trained on, and how much further to go."""

    model: SequenceModel
    task: Task
    times: int = 8
    batch_size: int = 16  # rows at the trained length; longer ones are read in fewer rows

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ConfigError(f"long: a number of times the trained length is needed, 1 or more, got {self.times}.")

    def curves(self) -> Iterator[Curve]:
        """One after the other, as they are measured."""
        return (replace(curve, times=self.times) for curve in self.measured())

    def measured(self) -> Iterator[Curve]:
        if isinstance(self.task, Language):
            yield self.loss_by_place(self.task)
            yield from self.needles(self.task)
        else:
            yield from self.accuracies()
        yield from token_cost(self.model, [self.task.tokens_in("train") * by for by in doubling(self.times)])

    def loss_by_place(self, task: Language) -> Curve:
        """Whether what lies far back helps, or harms where no training went so far."""
        times = max(by for by in doubling(self.times) if by == 1 or task.corpus.windows_in("test", task.length * by))
        length = task.length * times
        there = task.corpus.windows_in("test", length)
        longer = replace(task, length=length, eval_size=max(min(there, ROWS // times), 1))
        found = score(self.model, longer, "test", self.rows(times)).metrics
        points = [(high + 1, found[f"loss/place_{low}_{high}"]) for low, high in longer.places]
        return Curve(name="loss", along="place", points=points, trained=task.length)

    def needles(self, task: Language) -> Iterator[Curve]:
        """A number that was told once, further and further back; and one among more and more."""
        far = [task.length * by // 4 for by in doubling(4 * self.times)]
        hay = Haystack(task.corpus, task.length)
        by_distance = [(far_back, self.found(hay, far_back, 1)) for far_back in far]
        yield Curve(name="needle", along="distance", points=by_distance, trained=task.length)
        by_pairs = [(pairs, self.found(hay, task.length // 2, pairs)) for pairs in doubling(MOST_PAIRS)]
        yield Curve(name="needle", along="pairs", points=by_pairs)

    def found(self, hay: Haystack, distance: int, pairs: int) -> float:
        rows = hay.hidden(distance, pairs)
        return found_needles(self.model, rows, self.rows(-(-len(rows[0].context) // hay.length)))

    def accuracies(self) -> Iterator[Curve]:
        """One curve for each side."""
        tests = self.task.harder(self.times)
        for along in dict.fromkeys(test.along for test in tests):
            points = []
            for _, value, test in (one for one in tests if one.along == along):
                wider = -(-test.tokens_in("test") // self.task.tokens_in("train"))
                small = replace(test, eval_size=min(test.eval_size, ROWS))
                points.append((value, score(self.model, small, "test", self.rows(wider)).metrics["accuracy"]))
            yield Curve(name="accuracy", along=along, points=points, trained=points[0][0])

    def rows(self, times: int) -> int:
        """How many to read at once, where each is so many times longer."""
        return max(self.batch_size // times, 1)
