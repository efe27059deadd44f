"""Tracked recall: which value is stored under the present state and this tag?

    for every state of a group and every tag, in random order: state tag value          values uniform
    then updates g, uniform in the group; after `queries` of them a tag                 label at this tag: the value

    s starts at the identity; an update replaces it by g o s; the value is that of (s, tag)

The number of updates sets how long the state is tracked; |G| x tags sets how much is stored.  Softmax alone is expected
to fail with more updates, fast weights alone with more tags.  A model that ignores the state cannot be better than
guessing the most frequent value of the tag (`shortcut_accuracies`).  The size counts the updates.

    task: {name: tracked_recall, group: S3, tags: 4, values: 16, train_length: [16, 16], test_length: [16, 48]}

A synthetic composite in the spirit of delayed attention training, arXiv:2510.00258; not its task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, factorial

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._finite_groups import Group, find_group_mistake, make_group
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._shortcut_accuracy import expected_top_share

FIRST_UPDATE = 1


@register("task", "tracked_recall")
@dataclass(frozen=True, kw_only=True)
class TrackedRecall(GeneratedTask):
    train_length: tuple[int, int] = (16, 16)
    """Smallest and largest number of updates in train and short."""
    test_length: tuple[int, int] = (16, 48)
    """Smallest and largest number of updates in test."""
    group: str = "S3"
    """Group of the states: permutations (Sn, or An: even ones), cyclic (Zn), or a product such as Z2xZ3."""
    tags: int = 4
    """Number of values that are stored for each state."""
    values: int = 16
    """Number of different values."""
    queries: int = 4
    """Number of queried tags in a row."""

    has_sequence_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"tags": 1, "values": 2, "queries": 1})
        if mistake := find_group_mistake(self.group):
            issues.append(ConfigIssue("group", "invalid_group", mistake, "Use S3, Z5 or Z2xZ3, for example."))
        return issues

    @property
    def elements(self) -> Group:
        """The group."""
        return make_group(self.group)

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.elements.names)

    @property
    def table_tokens(self) -> int:
        """Number of tokens in front of the first update."""
        return 3 * self.states * self.tags

    @property
    def unread_tokens(self) -> int:
        return -(self.table_tokens + self.queries)

    @property
    def min_size(self) -> int:
        return self.queries

    @property
    def alphabet(self) -> tuple[str, ...]:
        updates, states = (f"g{name}" for name in self.elements.names), (f"s{name}" for name in self.elements.names)
        tags, values = (f"t{number}" for number in range(self.tags)), (f"v{number}" for number in range(self.values))
        return ("_", *updates, *states, *tags, *values)

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    @property
    def shortcut_accuracies(self) -> Mapping[str, float]:
        return {"the most frequent value of the tag": 100 * expected_top_share(self.states, self.values)}

    def count_inputs(self, size: int) -> int:
        table = factorial(self.states * self.tags) * self.values ** (self.states * self.tags)
        return table * self.states**size * comb(size, self.queries) * self.tags**self.queries

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        count, cells, rows = len(sizes), self.states * self.tags, np.arange(len(sizes))[:, None]
        first_state = FIRST_UPDATE + self.states
        first_tag = first_state + self.states
        first_value = first_tag + self.tags
        values = rng.integers("value", first_value, first_value + self.values - 1, cells)  # [B, cells] by state, tag
        order = rng.permutations("order", cells)
        state, tag = np.divmod(order, self.tags)
        tokens, labels = np.full((2, count, width), [[[0]], [[-1]]])
        table = np.stack([first_state + state, first_tag + tag, np.take_along_axis(values, order, 1)], 2)
        tokens[:, : self.table_tokens] = table.reshape(count, -1)

        num_updates = width - self.table_tokens - self.queries  # of the longest row
        updates = rng.integers("update", 0, self.states - 1, num_updates)
        states = track_states(self.elements, updates)  # [B, n]
        # the updates after which a tag is queried
        queried_after = np.sort(rng.distinct_integers("query", 0, sizes - 1, self.queries), 1)
        queried_tags = rng.integers("tag", 0, self.tags - 1, self.queries)
        number = np.arange(num_updates)
        queries_before = (queried_after[:, None] < number[:, None]).sum(2)  # [B, n]
        tokens[rows, self.table_tokens + number + queries_before] = FIRST_UPDATE + updates
        columns = self.table_tokens + queried_after + 1 + np.arange(self.queries)
        tokens[rows, columns] = first_tag + queried_tags
        labels[rows, columns] = values[rows, states[rows, queried_after] * self.tags + queried_tags]
        return tokens, labels


def track_states(group: Group, updates: IntArray) -> IntArray:
    """Return the state after each update [B, n], from the identity."""
    states = updates.T.copy()
    for t in range(1, len(states)):
        states[t] = group.products[states[t], states[t - 1]]
    return states.T
