"""Even pairs: do the first and the last bit agree?

    tokens 1 (zero) and 2 (one), uniform          label 1 if first = last, else 2

They agree if the number of pairs 01 and 10 is even, hence the name.  The state is two bits: the first token, which
never changes, and the current token.  The size counts the bits and the answer.

    task: even_pairs

Deletang et al. 2022, arXiv:2207.02098.
"""

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import StateTask


@register("task", "even_pairs")
class EvenPairs(StateTask):
    alphabet = ("_", "0", "1")
    chance_level = 50.0
    min_size = 3  # a single bit always agrees with itself

    def count_inputs(self, size: int) -> int:
        return 2 ** (size - 1)

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        tokens = rng.integers("bit", 1, 2, width)
        return tokens, 1 + (tokens != tokens[:, :1])
