"""The contract of a task that tracks a state: every prefix has an answer, and the last one counts.

The size of an example includes the answer, as in the paper; the model reads one token less, and the answer is due at
the last token that it reads.  `label: every` asks for it after every prefix that has one.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._generated import Generated


@dataclass(frozen=True, kw_only=True)
class StateTask(Generated):
    """Gives `track` in place of `write`."""

    label: Literal["last", "every"] = "last"
    """Where an answer is due: at the last token, or after every prefix that has one."""

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        """Tokens, and the answer to the text up to each of them; -1 where it has none.  Both [B, width]."""
        raise NotImplementedError(f"{type(self).__name__} tracks nothing.")

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        tokens, answers = self.track(draws, sizes, width)
        if self.label == "every":
            return tokens, answers
        last = np.arange(width) == sizes - self.unread - 1  # [B, T]
        return tokens, np.where(last, answers, -1)
