"""Even pairs: do the first and the last bit agree?

    tokens 1 (zero) and 2 (one), uniform          answer 1 if first = last, else 2

The pairs 01 and 10 are then even in number, which gave it its name.  A state of two bits, of which one never changes
and the other is the current token.  The size counts the bits and the answer.

    task: even_pairs

Deletang et al. 2022, arXiv:2207.02098.
"""

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._state import StateTask


@register("task", "even_pairs")
class EvenPairs(StateTask):
    alphabet = ("_", "0", "1")
    chance = 50.0
    shortest = 3  # a single bit agrees with itself

    def variety(self, size: int) -> int:
        return 2 ** (size - 1)

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        tokens = draws.integers("bit", 1, 2, width)
        return tokens, 1 + (tokens != tokens[:, :1])
