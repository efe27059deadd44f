"""Random languages: rows against a walk of their automaton, statistics of the published generator, and metrics."""

from collections import Counter
from itertools import groupby

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.tasks.state_tracking._ngram_guessing import ngram_accuracy
from hqlt_lab.tasks.state_tracking._random_automata import Walks
from hqlt_lab.tasks.state_tracking.in_context_languages import join_strings
from hqlt_lab.train.scoring import eval_batches

ROWS = 1000


@pytest.fixture(scope="module")
def task():
    return lab.build("task", {"name": "in_context_languages", "eval_size": ROWS})


@pytest.fixture(scope="module")
def arrays(task):
    return task.generate_arrays("test", 0, 0, ROWS)


@pytest.fixture(scope="module")
def automata(task):
    """The automaton of each test row as a list of states, each a dict from symbol to next state."""
    drawn = task.draw_automata(task._make_rng("test", 0, np.arange(ROWS)))
    return [
        [
            dict(zip(symbols[:count], targets[:count], strict=True))
            for count, symbols, targets in zip(*map(np.ndarray.tolist, row), strict=True)
        ]
        for row in zip(*drawn, strict=True)
    ]


def split_strings(tokens, separator):
    return [
        list(string) for is_separator, string in groupby(tokens, lambda token: token == separator) if not is_separator
    ]


def token_set(bits):
    return {token for token in range(64) if bits >> token & 1}


def test_labels_and_legal_tokens_are_those_of_a_walk_on_the_automaton(arrays, automata):
    for row in range(ROWS):
        states, state = automata[row], 0
        length = arrays.lengths[row] - 1
        for position in range(length):
            token, label = int(arrays.tokens[row, position]), int(arrays.labels[row, position])
            state = 0 if token == 1 else states[state][token - 2]
            legal = {symbol + 2 for symbol in states[state]}
            assert token_set(int(arrays.legal_next[row, position])) == legal
            assert label in legal or (label == -1 and (position + 1 == length or arrays.tokens[row, position + 1] == 1))
        assert not arrays.legal_next[row, length:].any() and (arrays.labels[row, length:] == -1).all()


def test_strings_that_begin_alike_continue_alike(arrays):
    """Without the automaton: equal beginnings of strings of a row have equal legal tokens, which occur behind them."""
    for row in range(100):
        legal_by_beginning, beginning = {}, ()
        for position in range(arrays.lengths[row] - 1):
            token = int(arrays.tokens[row, position])
            beginning = () if token == 1 else (*beginning, token)
            legal = int(arrays.legal_next[row, position])
            assert legal_by_beginning.setdefault(beginning, legal) == legal
            if (label := int(arrays.labels[row, position])) >= 0:
                assert legal >> label & 1
        assert len(legal_by_beginning) > 10


def minimize(states):
    """Return the number of classes of reachable states that accept the same strings, by partition refinement."""
    reachable, frontier = {0}, [0]
    while frontier:
        new = set(states[frontier.pop()].values()) - reachable
        reachable |= new
        frontier += new
    classes = dict.fromkeys(reachable, 0)
    while True:
        signatures = {
            state: tuple(sorted((symbol, classes[target]) for symbol, target in states[state].items()))
            for state in reachable
        }
        numbers = {signature: number for number, signature in enumerate(sorted(set(signatures.values())))}
        refined = {state: numbers[signatures[state]] for state in reachable}
        if len(numbers) == len(set(classes.values())):
            return len(numbers)
        classes = refined


def test_rows_have_the_statistics_of_the_published_generator(arrays, automata):
    tokens, has_label = arrays.tokens > 0, arrays.labels >= 0
    num_strings = (arrays.tokens == 1).sum(1) + 1
    num_legal = np.bitwise_count(arrays.legal_next)
    by_row = {
        373.4: tokens.sum(1),
        14.458: num_strings,
        96.4: 100 * has_label.sum(1) / tokens.sum(1),
        1.970: (num_legal * has_label).sum(1) / has_label.sum(1),
        0.5793: (np.log(np.maximum(num_legal, 1)) * has_label).sum(1) / has_label.sum(1),
    }
    for published, values in by_row.items():
        assert abs(values.mean() - published) < 4 * 2**0.5 * values.std() / ROWS**0.5, published
    assert num_strings.min() >= 10 and num_strings.max() <= 19 and tokens.sum(1).max() < 700
    lengths = [len(s) for row in arrays.tokens for s in split_strings(row[row > 0].tolist(), 1)[:-1]]
    assert min(lengths) == 1 and max(lengths) == 49 and abs(np.mean(lengths) - 25) < 4 * np.std(lengths) / 1e4**0.5
    # out-degrees 1, 2 and 3 are equally frequent; 4 to 12 states, of which those that differ and are reachable count
    degrees = Counter(len(state) for states in automata for state in states)
    assert set(degrees) == {1, 2, 3} and max(degrees.values()) / min(degrees.values()) < 1.1
    # edges lead to different other states
    for states in automata:
        assert all(number not in edges.values() for number, edges in enumerate(states))
        assert all(len(set(edges.values())) == len(edges) for edges in states)
    sizes = Counter(map(minimize, automata))
    assert set(sizes) <= set(range(1, 13)) and 5 <= sizes.most_common(1)[0][0] <= 8 and sizes[12] > 0


def test_all_labels_of_a_state_are_equally_likely(arrays, automata):
    counts, expected = Counter(), Counter()
    for row in range(ROWS):
        for legal, label in zip(arrays.legal_next[row].tolist(), arrays.labels[row].tolist(), strict=True):
            if label >= 0 and (size := legal.bit_count()) > 1:
                rank = sorted(token_set(legal)).index(label)
                counts[size, rank] += 1
                expected[size] += 1 / size
    for (size, _), count in counts.items():
        assert abs(count - expected[size]) < 4 * expected[size] ** 0.5 * 1.2


# rows of the published generator with 6 symbols: edges of each state, inputs, and labels (a is 1, - is none)
LITERAL_ROWS = [
    (
        "5: e2; 2: b4 e5 d1; 4: b2 a0 f1; 0: a4 b1; 1: a4 f2 b0",
        "e | e b a a | e e e d | e e e b",
        "- 5 2 1 1 - 5 5 5 4 - 5 5 5 2 1",
    ),
    (
        "5: a4 f2 c0; 4: c1; 1: f2; 2: a1 d0; 0: b2 d5 e4",
        "a c f | a c f | c d c | f a f d e",
        "3 6 - 1 3 6 - 3 4 3 - 6 1 6 4 5 3",
    ),
    ("5: e1; 1: b2; 2: c4; 4: e2", "e b c | e | e b", "2 3 - 5 - 5 2 3"),
]


@pytest.mark.parametrize(("edges", "inputs", "labels"), LITERAL_ROWS)
def test_literal_rows_are_joined_and_labeled_as_published(edges, inputs, labels):
    states = {}
    for state in edges.split("; "):
        name, targets = state.split(": ")
        states[name] = {symbol: target for symbol, target in targets.split()}
    last_symbol = chr(ord("a") + int(labels[-1]) - 1)
    strings = [string.split() for string in f"{inputs} {last_symbol}".split(" | ")]
    longest = max(map(len, strings))
    walked = np.zeros((2, longest, 1, len(strings)), dtype=np.int64)

    def to_bits(state):
        return sum(1 << ord(symbol) - ord("a") for symbol in states[state])

    for index, string in enumerate(strings):
        state = "5"
        for step, symbol in enumerate(string):
            state = states[state][symbol]  # fails if the published row is not a walk
            walked[:, step, 0, index] = ord(symbol) - ord("a"), to_bits(state)
    lengths = np.array([list(map(len, strings))])
    arrays = join_strings(Walks(*walked), lengths, np.array([[to_bits("5")]]), 20)
    words = inputs.split()
    assert arrays.lengths.tolist() == [len(words) + 1]
    expected = [1 if word == "|" else ord(word) - ord("a") + 2 for word in words]
    assert arrays.tokens[0].tolist() == expected + [0] * (20 - len(words))
    published = [-1 if label == "-" else int(label) + 1 for label in labels.split()]
    assert arrays.labels[0].tolist() == published + [-1] * (20 - len(words))


def test_metrics_agree_with_sums_over_single_positions(task):
    batch = task.get_examples("test", 0, 0, 6).trim_padding(1)
    logits = torch.randn(*batch.tokens.shape, task.vocabulary, generator=torch.Generator().manual_seed(0))
    legal_guesses, distances = [], []
    for row in range(6):
        for position in range(int(batch.lengths[row]) - 1):
            legal = token_set(int(batch.legal_next[row, position]))
            probabilities = logits[row, position].double().softmax(0).tolist()
            distances.append(sum(abs(p - (v in legal) / len(legal)) for v, p in enumerate(probabilities)))
            if batch.labels[row, position] >= 0:
                legal_guesses.append(probabilities.index(max(probabilities)) in legal)
    counts = task.score_examples(logits, batch)
    metrics = task.compute_metrics({name: float(count.sum()) for name, count in counts.items()})
    assert metrics["legal_accuracy"] == pytest.approx(100 * np.mean(legal_guesses))
    assert metrics["l1_distance"] == pytest.approx(np.mean(distances))
    assert 5 < metrics["legal_accuracy"] < 20 and {"legal_accuracy", "l1_distance"} <= set(task.metric_names)


def test_the_true_distribution_has_distance_0_and_the_wrong_symbol_2(task):
    batch = task.get_examples("test", 0, 0, 4)
    is_legal = (batch.legal_next[..., None] >> torch.arange(task.vocabulary) & 1).double()
    for logits, expected in ((is_legal.log(), 0.0), ((1 - is_legal).log(), 2.0)):
        counts = task.score_examples(logits.clamp(min=-1e9), batch)
        metrics = task.compute_metrics({name: float(count.sum()) for name, count in counts.items()})
        assert metrics["l1_distance"] == pytest.approx(expected, abs=1e-9)
        assert metrics["legal_accuracy"] == 100 * (expected == 0)


def plain_ngram_accuracy(batch, order):
    """Recount all earlier places at every position: what followed the longest end of the context that has followers."""
    correct = total = 0
    for tokens, labels, legal in zip(batch.tokens, batch.labels, batch.legal_next, strict=True):
        for position in np.nonzero(labels >= 0)[0]:
            seen = [1, *tokens[: position + 1].tolist()]  # with a separator in front of the first string
            start = max(i for i, token in enumerate(seen) if token == 1)
            context = seen[max(start, len(seen) - order + 1) :] if order > 1 else []
            for length in range(len(context), -1, -1):
                end = context[len(context) - length :]
                followers = [seen[i] for i in range(length, len(seen)) if seen[i] != 1 and seen[i - length : i] == end]
                if followers:
                    break
            guess = Counter(followers).most_common(1)[0][0]
            correct += int(legal[position]) >> guess & 1
            total += 1
    return 100 * correct / total


@pytest.mark.parametrize("order", [1, 3])
def test_ngram_guessing_agrees_with_counting_anew_at_each_position(arrays, order):
    rows = arrays._replace(tokens=arrays.tokens[:6], labels=arrays.labels[:6], legal_next=arrays.legal_next[:6])
    accuracy = ngram_accuracy(rows.tokens, rows.labels, rows.legal_next, order, 1)
    assert accuracy == pytest.approx(plain_ngram_accuracy(rows, order))


def test_chance_and_shortcuts_are_known(task, arrays):
    chance = task.chance_by_metric["legal_accuracy"]
    assert chance == pytest.approx(100 * 1.970 / 18, rel=0.05)
    (scores,) = task.shortcut_scores.values()
    unigram, trigram = scores.values()
    assert 3 * chance < unigram < 60 and 85 < trigram < 97
    later = [field[500:700] for field in (arrays.tokens, arrays.labels, arrays.legal_next)]
    assert ngram_accuracy(*later, 3, 1) == pytest.approx(trigram, abs=1.5)


def test_slices_have_metrics_and_floors_of_their_own():
    slices = [{"test_length": [3, 3]}, {"test_length": [12, 12]}]
    task = lab.build("task", {"name": "in_context_languages", "test_slices": slices, "eval_size": 40})
    names = [part.name for part in task.slices("test")]
    assert {f"legal_accuracy/{name}" for name in names} == set(task.shortcut_scores) <= set(task.metric_names)
    few, many = (list(task.shortcut_scores[f"legal_accuracy/{name}"].values())[1] for name in names)
    assert few < many and f"legal_accuracy/{names[0]}" in task.chance_by_metric


def test_automata_of_all_splits_differ(task):
    rows = [
        tuple(map(np.ndarray.tobytes, row))
        for split in task.splits
        for row in zip(*task.draw_automata(task._make_rng(split, 0, np.arange(500))), strict=True)
    ]
    assert len(set(rows)) == 2000


def test_batches_are_as_wide_as_their_longest_row(task):
    batch = task.get_train_batch(3, 5, 8)
    full = task.get_examples("train", 3, 40, 8)
    width = int(full.lengths.max()) - 1
    assert batch.tokens.shape == batch.labels.shape == batch.legal_next.shape == (8, width)
    assert width < full.tokens.shape[1] == 948 and torch.equal(batch.tokens, full.tokens[:, :width])
    for batch, _ in eval_batches(task, "test", 500):
        assert batch.tokens.shape[1] == batch.legal_next.shape[1] == int(batch.lengths.max()) - 1
