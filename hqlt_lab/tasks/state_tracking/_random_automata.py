"""Random automata without final states, and walks on them, for many rows at once.

    each state has 1 to 3 edges to different other states, labeled with different symbols of the automaton
    a walk starts at state 0; each edge of its state is equally likely

The published generator then merges equivalent states and drops those that are not reachable.  Both leave the walks and
the legal symbols as they are, since equivalent states have the same symbols, so it is not done here.
"""

from typing import NamedTuple

import numpy as np

from hqlt_lab.tasks._counter_rng import CounterRng, IntArray

Range = tuple[int, int]


class Automata(NamedTuple):
    """An automaton per row; edges of a state from its number of edges on may be anything."""

    num_edges: IntArray  # [B, S]
    symbols: IntArray  # [B, S, E] the symbol of each edge
    targets: IntArray  # [B, S, E] the state to which it leads

    def legal_symbols(self) -> IntArray:
        """Return the symbols of the edges of each state [B, S], as an integer whose bit v is set for symbol v."""
        is_edge = np.arange(self.symbols.shape[2]) < self.num_edges[:, :, None]
        return np.where(is_edge, 1 << self.symbols, 0).sum(2)


class Walks(NamedTuple):
    """Walks of an automaton, several per row; steps behind the end of a walk may be anything."""

    symbols: IntArray  # [L, B, N]
    legal: IntArray  # [L, B, N] symbols that are legal behind each step, as bits


def draw_automata(rng: CounterRng, states: Range, symbols: Range, edges: Range) -> Automata:
    """Draw automata with numbers of states, symbols and edges per state in these ranges."""
    count, most_states, letters, most_edges = len(rng.example_numbers), states[1], symbols[1], edges[1]
    num_states, num_symbols = rng.integers("states", *states), rng.integers("symbols", *symbols)  # [B, 1]
    num_edges = rng.integers("edges", *edges, most_states)
    alphabet = rng.permutations("alphabet", letters)  # the first `num_symbols` are those of the automaton
    preference = rng.uniform("symbol", most_states * letters).reshape(count, most_states, letters)
    is_symbol = np.arange(letters) < num_symbols[:, :, None]
    picks = np.where(is_symbol, preference, 2.0).argsort(2, kind="stable")[:, :, :most_edges]
    edge_symbols = np.take_along_axis(alphabet[:, None], picks, 2)
    preference = rng.uniform("target", most_states**2).reshape(count, most_states, most_states)
    is_target = (np.arange(most_states) < num_states[:, :, None]) & ~np.eye(most_states, dtype=bool)
    targets = np.where(is_target, preference, 2.0).argsort(2, kind="stable")[:, :, :most_edges]
    return Automata(num_edges, edge_symbols, targets)


def walk_automata(rng: CounterRng, automata: Automata, walks: int, steps: int) -> Walks:
    """Draw walks on the automaton of each row."""
    count, most_states, most_edges = automata.symbols.shape
    choices = rng.uniform("edge", walks * steps).reshape(count, walks, steps).transpose(2, 0, 1)
    # tables over all states of all rows, whose edges are at most_edges * state + edge
    first_state = most_states * np.arange(count)[:, None]
    num_edges, symbols = automata.num_edges.ravel(), automata.symbols.ravel()
    targets = (automata.targets + first_state[:, :, None]).ravel()
    legal_symbols = automata.legal_symbols().ravel()
    state = np.broadcast_to(first_state, (count, walks))
    walked = Walks(*np.zeros((2, steps, count, walks), dtype=np.int64))
    for step in range(steps):
        edge = most_edges * state + (choices[step] * num_edges[state]).astype(np.int64)
        state = targets[edge]
        walked.symbols[step], walked.legal[step] = symbols[edge], legal_symbols[state]
    return walked
