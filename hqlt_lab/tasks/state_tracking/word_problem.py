"""Word problem: which group element is the product of these elements?

    [bos] tokens g_1, g_2, ... uniform in a group or in a part of it        label after t elements: their product

    newest_acts: first        g_1 o g_2 o ... o g_t       as in the published generators
    newest_acts: last         g_t o ... o g_2 o g_1       as in permutation_composition; the inverses of the other

Groups are S3, S4, S5, A4, A5 (permutations), Z60 (cyclic) and products such as A4xZ5.  With `max_moved: 2` the inputs
are the identity and the swaps, and the labels all elements.  With `tokens_per_element: 4` three blanks follow each
element, and the label is at the last of them.  The token `bos` in front of a row is its own label in training and is
not scored.  The size counts the tokens behind it.

    task: {name: word_problem, group: S5, max_moved: 2, train_length: [32, 32], test_length: [128, 128]}

Besides `accuracy` by token there is `sequence_accuracy`: the share of rows without a mistake, also up to 8, 16, ...
tokens.

Merrill, Petty, Sabharwal 2024, arXiv:2404.08819.  Grazzi et al. 2024, arXiv:2411.12537.  Siems et al. 2025,
arXiv:2502.10297.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._finite_groups import Group, find_group_mistake, make_group
from hqlt_lab.tasks._generated_task import ExampleArrays, LabelMode, StateTask
from hqlt_lab.tasks._length_scoring import geometric_range

FIRST_ELEMENT, FIRST_PREFIX = 1, 8


@register("task", "word_problem")
@dataclass(frozen=True, kw_only=True)
class WordProblem(StateTask):
    label: LabelMode = "every"
    """Labeled tokens: the last one, every one that ends an element, or every one in training only."""
    group: str = "S3"
    """Group: permutations (Sn, or An: even ones), cyclic (Zn), or a product such as A4xZ5."""
    max_moved: int | None = None
    """Inputs are only the permutations that move at most this many things; null: all elements."""
    tokens_per_element: int = 1
    """Tokens of each element: its own and then blanks."""
    newest_acts: Literal["first", "last"] = "first"
    """Whether the newest element of a product acts first or last."""
    bos: bool = True
    """A token in front of each row."""

    has_sequence_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"tokens_per_element": 1, "max_moved": 2})
        if mistake := find_group_mistake(self.group):
            issues.append(ConfigIssue("group", "invalid_group", mistake, "Use S5, A5, Z60 or A4xZ5, for example."))
        elif self.max_moved is not None and self.elements.num_moved is None:
            message = f"the elements of {self.group} are not permutations."
            issues.append(ConfigIssue("max_moved", "no_permutations", message, "Leave it out."))
        return issues

    @property
    def elements(self) -> Group:
        """The group."""
        return make_group(self.group)

    @property
    def inputs(self) -> IntArray:
        """Indices of the elements that may be tokens of a row."""
        moved = self.elements.num_moved
        return np.arange(len(self.elements.names)) if moved is None else np.nonzero(moved <= (self.max_moved or 99))[0]

    @property
    def unread_tokens(self) -> int:
        return -int(self.bos)

    @property
    def min_size(self) -> int:
        return max(2, self.tokens_per_element)

    @property
    def alphabet(self) -> tuple[str, ...]:
        blank, bos = (".",) if self.tokens_per_element > 1 else (), ("bos",) if self.bos else ()
        return ("_", *self.elements.names, *blank, *bos)

    @property
    def chance_level(self) -> float:
        return 100 / len(self.elements.names)

    @property
    def prefix_lengths(self) -> Sequence[int]:
        longest = self.length_ranges["test"][1]
        return [] if longest < FIRST_PREFIX else geometric_range(longest, FIRST_PREFIX)

    def count_inputs(self, size: int) -> int:
        return len(self.inputs) ** (size // self.tokens_per_element)

    def size_range(self, low: int, high: int) -> tuple[int, int]:
        step = self.tokens_per_element
        return low // step * step, high // step * step

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        step = self.tokens_per_element
        return step * rng.integers("size", low // step, high // step)

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        count = (width - int(self.bos)) // self.tokens_per_element
        elements = self.inputs[rng.integers("element", 0, len(self.inputs) - 1, count)]
        states = elements.T.copy()  # [count, B], so that each step is a contiguous row
        for t in range(1, count):
            pair = (states[t - 1], states[t]) if self.newest_acts == "first" else (states[t], states[t - 1])
            states[t] = self.elements.products[pair]
        blank = FIRST_ELEMENT + len(self.elements.names)
        step = self.tokens_per_element
        tokens, labels = np.full((len(sizes), count * step), blank), np.full((len(sizes), count * step), -1)
        tokens[:, ::step], labels[:, step - 1 :: step] = FIRST_ELEMENT + elements, FIRST_ELEMENT + states.T
        if not self.bos:
            return tokens, labels
        first = ((0, 0), (1, 0))
        return np.pad(tokens, first, constant_values=self.vocabulary - 1), np.pad(labels, first, constant_values=-1)

    def select_labels(self, arrays: ExampleArrays, split: Split) -> ExampleArrays:
        arrays = super().select_labels(arrays, split)
        if self.bos and split == "train" and self.label != "last":
            arrays.labels[:, 0] = arrays.tokens[:, 0]
        return arrays
