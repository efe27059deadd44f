"""In context languages: learn a random regular language from some of its strings, and continue them.

    string | string | ...        every row has a random automaton of its own        label: the next symbol of a string

Several symbols may follow, and each is equally likely.  `legal_accuracy` is the percentage of predictions that may
follow, `l1_distance` the sum over all tokens of |predicted - true probability|, which is 0 at best and 2 at worst.
`accuracy` counts only the symbol that does follow.  The first symbol of a row and the separators have no label.

A state has edges to different other states, labeled with different symbols.  Sizes in options count strings, those in
metrics all tokens, of which the last is not read.  Batches are as wide as their longest row.

    task: {name: in_context_languages, states: [4, 12], symbols: [4, 18], train_length: [10, 19]}

Akyürek, Wang, Kim, Andreas 2024, arXiv:2401.12973 (also called RegBench).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Batch, Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import ExampleArrays, GeneratedTask
from hqlt_lab.tasks._length_scoring import check_length_ranges
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.state_tracking._ngram_guessing import ngram_accuracy
from hqlt_lab.tasks.state_tracking._random_automata import Automata, Walks, draw_automata, walk_automata

if TYPE_CHECKING:
    from torch import Tensor

SEPARATOR, FIRST_SYMBOL = 1, 2
MAX_SYMBOLS = 60  # so that a set of tokens fits into an integer of 64 bits
MEASURED_ROWS = 100  # rows of the test in which chance and shortcuts are measured


@register("task", "in_context_languages")
@dataclass(frozen=True, kw_only=True)
class InContextLanguages(GeneratedTask):
    train_length: tuple[int, int] = (10, 19)
    """Smallest and largest number of strings in a row of train and short."""
    test_length: tuple[int, int] = (10, 19)
    """Smallest and largest number of strings in a row of test."""
    states: tuple[int, int] = (4, 12)
    """Smallest and largest number of states of an automaton."""
    symbols: tuple[int, int] = (4, 18)
    """Smallest and largest number of symbols of an automaton; the largest is the number of different symbols."""
    edges: tuple[int, int] = (1, 3)
    """Smallest and largest number of edges of a state."""
    string_length: tuple[int, int] = (1, 49)
    """Smallest and largest number of symbols of a string."""

    has_rare_sizes = True
    scores_predictions = False

    def find_option_issues(self) -> list[ConfigIssue]:
        names = {"states": 2, "symbols": 1, "edges": 1, "string_length": 1}
        issues = [
            issue
            for name, minimum in names.items()
            for issue in check_length_ranges({name: getattr(self, name)}, minimum)
        ]
        if issues:
            return issues
        if self.symbols[1] > MAX_SYMBOLS:
            message = f"at most {MAX_SYMBOLS} symbols are allowed, got {self.symbols[1]}."
            issues.append(ConfigIssue("symbols", "too_many_symbols", message))
        most_edges = min(self.states[0] - 1, self.symbols[0])
        if self.edges[1] > most_edges:
            message = (
                f"the smallest automaton has {self.states[0]} states and {self.symbols[0]} symbols, so a state has at "
                f"most {most_edges} edges, got {self.edges[1]}."
            )
            issues.append(ConfigIssue("edges", "too_many_edges", message))
        return issues

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "|"), ("s", self.symbols[1]))

    @property
    def chance_level(self) -> float:
        return 100 / self.symbols[1]

    def split_range(self, split: str, low: int, high: int) -> tuple[int, int]:
        shortest, longest = self.string_length
        return low * (shortest + 1) - 1, high * (longest + 1) - 1

    def generate_rows(self, split: Split, seed: int, numbers: IntArray, stream_suffix: str = "") -> ExampleArrays:
        rng, width = self._make_rng(split, seed, numbers, stream_suffix), self.sequence_length(split)
        low, high = self._requested_ranges()[split]
        automata = self.draw_automata(rng)
        walks = walk_automata(rng, automata, high, self.string_length[1])
        is_string = np.arange(high) < rng.integers("strings", low, high)  # [B, N]
        lengths = np.where(is_string, rng.integers("length", *self.string_length, high), 0)
        first_symbols = automata.legal_symbols()[:, :1]
        return self.select_labels(join_strings(walks, lengths, first_symbols, width), split)

    def draw_automata(self, rng: CounterRng) -> Automata:
        return draw_automata(rng, self.states, self.symbols, self.edges)

    def get_train_batch(self, seed: int, step: int, batch_size: int, rank: int = 0, world_size: int = 1) -> Batch:
        batch = super().get_train_batch(seed, step, batch_size, rank, world_size)
        return batch.trim_padding(self.unread_tokens)

    def score_predictions(self, predictions: "Tensor", batch: Batch) -> "dict[str, Tensor]":
        counts = super().score_predictions(predictions, batch)
        is_legal = (batch.legal_next >> predictions) & 1  # [B, T]
        return counts | {"legal": (is_legal * (batch.labels >= 0)).sum(1)}

    def score_examples(self, logits: "Tensor", batch: Batch) -> "dict[str, Tensor]":
        import torch

        is_legal = (batch.legal_next[..., None] >> torch.arange(self.vocabulary, device=logits.device)) & 1  # [B, T, V]
        num_legal = is_legal.sum(-1)
        true = is_legal.double() / num_legal.clamp(min=1)[..., None]
        distance = (logits.double().softmax(-1) - true).abs().sum(-1) * (num_legal > 0)
        counts = {"distance": distance.sum(1), "positions": (num_legal > 0).sum(1)}
        return self.score_predictions(logits.argmax(-1), batch) | counts

    def compute_metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        metrics = super().compute_metrics(totals)
        for name in ["", *(f"/{part.name}" for part in self.slices("test"))]:
            if totals.get(f"scored{name}", 0) > 0:
                metrics[f"legal_accuracy{name}"] = 100 * totals[f"legal{name}"] / totals[f"scored{name}"]
            if totals.get(f"positions{name}", 0) > 0:
                metrics[f"l1_distance{name}"] = totals[f"distance{name}"] / totals[f"positions{name}"]
        return metrics

    @property
    def metric_names(self) -> list[str]:
        suffixes = ["", *(f"/{part.name}" for part in self.slices("test"))]
        own = [f"{metric}{suffix}" for metric in ("legal_accuracy", "l1_distance") for suffix in suffixes]
        return [*super().metric_names, *own]

    @cached_property
    def measured_rows(self) -> ExampleArrays:
        """The first rows of the test, in which chance and shortcuts are measured."""
        return self.generate_arrays("test", 0, 0, min(self.eval_size, MEASURED_ROWS))

    @property
    def chance_by_metric(self) -> Mapping[str, float]:
        chance = dict(super().chance_by_metric)
        for suffix, task in self.tasks_by_suffix().items():
            rows = task.measured_rows
            num_legal = np.bitwise_count(rows.legal_next[rows.labels >= 0])  # type: ignore[index]
            chance[f"legal_accuracy{suffix}"] = 100 * float(num_legal.mean()) / self.symbols[1]
        return chance

    @property
    def shortcut_scores(self) -> Mapping[str, Mapping[str, float]]:
        return {f"legal_accuracy{suffix}": task.ngram_accuracies for suffix, task in self.tasks_by_suffix().items()}

    def tasks_by_suffix(self) -> "dict[str, InContextLanguages]":
        """Return the task of each slice by the suffix of its metrics; without slices, this task."""
        return {f"/{variant.name}": variant.task for variant in self.variants.get("test", ())} or {"": self}  # type: ignore[misc]

    @cached_property
    def ngram_accuracies(self) -> Mapping[str, float]:
        """Legal accuracy in percent of n-gram guessing in the measured rows."""
        tokens, labels, _, legal_next = self.measured_rows
        names = {1: "the most frequent symbol of the row", 3: "the most frequent symbol behind the last two"}
        return {
            name: ngram_accuracy(tokens, labels, legal_next, order, SEPARATOR)  # type: ignore[arg-type]
            for order, name in names.items()
        }


def join_strings(walks: Walks, lengths: IntArray, first_symbols: IntArray, width: int) -> ExampleArrays:
    """Return rows of the walks with these lengths [B, N], 0 for no string, joined by separators.

    `first_symbols` [B, 1] are the legal symbols behind a separator.
    """
    starts = (lengths + 1).cumsum(1) - lengths - 1  # [B, N]
    steps = np.arange(len(walks.symbols))[:, None, None]
    is_symbol = steps < lengths  # [L, B, N]
    columns = (steps + starts)[is_symbol]
    rows = np.broadcast_to(np.arange(len(lengths))[:, None], is_symbol.shape)[is_symbol]
    sizes = (lengths.sum(1) + (lengths > 0).sum(1) - 1)[:, None]
    row = np.full((len(lengths), width + 1), SEPARATOR)
    legal_next = np.broadcast_to(first_symbols, row.shape).copy()
    row[rows, columns] = FIRST_SYMBOL + walks.symbols[is_symbol]
    legal_next[rows, columns] = walks.legal[is_symbol]
    is_read = np.arange(width) < sizes - 1  # [B, T]
    has_label = is_read & (row[:, 1:] != SEPARATOR)
    return ExampleArrays(
        np.where(is_read, row[:, :-1], 0),
        np.where(has_label, row[:, 1:], -1),
        sizes[:, 0],
        np.where(is_read, legal_next[:, :-1] << FIRST_SYMBOL, 0),
    )
