"""Statistics of copying, look-up and stacks agree with the published generators within four standard errors."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from tests.tasks.test_reference_labels import stack_manipulation

ROWS = 1000


def answer_lengths(spec):
    labels = lab.build("task", spec).generate_arrays("test", 0, 0, ROWS).labels
    return (labels >= 0).sum(1)


# mean number of letters of an answer, with the end for look-up, over 1,000 rows of the published generators
LENGTHS = [
    ({"name": "copying", "test_length": [5, 20]}, 12.71 + 1),
    ({"name": "copying", "test_length": [20, 50]}, 34.34 + 1),
    ({"name": "ngram_lookup", "query": "first", "test_length": [10, 20]}, 7.52),
]


@pytest.mark.parametrize(("spec", "published"), LENGTHS, ids=str)
def test_answers_are_as_long_as_published(spec, published):
    lengths = answer_lengths(spec)
    assert abs(lengths.mean() - published) < 4 * 2**0.5 * lengths.std() / ROWS**0.5


def test_packed_rows_hold_as_many_examples_as_published():
    """8.2 examples at lengths from 5 to 20 in 220 tokens, and 45 % of tokens with a label."""
    task = lab.build("task", {"name": "copying", "packed": 220})
    arrays = task.generate_arrays("train", 0, 0, ROWS)
    whole = (arrays.labels == task.alphabet.index(".")).sum(1)
    started = (arrays.tokens == task.alphabet.index("$")).sum(1)
    assert whole.mean() < 8.2 < started.mean() and ((started - whole) <= 1).all()
    assert (arrays.labels >= 0).mean() == pytest.approx(0.45, abs=0.005)
    assert (arrays.lengths == 220).all() and (arrays.tokens > 0).all()
    other = task.generate_arrays("train", 1, 0, ROWS)
    assert len(np.unique(np.concatenate([arrays.tokens, other.tokens]), axis=0)) == 2 * ROWS


def test_a_query_occurs_once_unless_no_part_does():
    task = lab.build("task", {"name": "ngram_lookup", "letters": 8, "length": 2})
    arrays = task.generate_arrays("test", 0, 0, 200)
    counts = []
    for row in range(200):
        words = [task.alphabet[token] for token in arrays.tokens[row] if token > 0]
        bar = words.index("|")
        string, query = words[1:bar], words[bar + 1 : bar + 3]
        counts.append(sum(string[i : i + 2] == query for i in range(len(string))))
    assert counts.count(1) == 200


def test_a_string_is_right_if_every_letter_is():
    task = lab.build("task", "copying")
    batch = task.get_examples("test", 0, 0, 50)
    predictions = batch.labels.clone()
    for row in range(10):
        position = int(torch.nonzero(batch.labels[row] >= 0)[row % 3])
        predictions[row, position] += 1
    counts = task.score_predictions(predictions, batch)
    metrics = task.compute_metrics({name: float(count.sum()) for name, count in counts.items()})
    assert metrics["sequence_accuracy"] == 80.0 and 99 < metrics["accuracy"] < 100


def test_final_stacks_are_as_high_as_published():
    """13.65 on average over lengths from 1 to 40, all equally frequent; a row of length 1 has one bit."""
    task = lab.build("task", {"name": "stack_manipulation", "test_length": [2, 40], "eval_size": 4000})
    heights = (task.generate_arrays("test", 0, 0, 4000).labels >= 0).sum(1) - 1
    error = heights.std() * (1 / 1000 + 1 / 4000) ** 0.5
    assert abs((39 * heights.mean() + 1) / 40 - 13.65) < 4 * error


# literal rows of the published generator: operations, and the final stack from its top
STACKS = [
    ("1 0 1 1 0 pop push1", "1 1 1 0 1"),
    ("0 1 1 1 push1 pop push0 push0", "0 0 1 1 1 0"),
    ("1 0 push1 pop push1 push1 pop push1 pop", "1 0 1"),
]


@pytest.mark.parametrize(("program", "stack"), STACKS)
def test_the_reference_of_stacks_agrees_with_published_rows(program, stack):
    prefix = program.split()
    outputs = [stack_manipulation(None, [*prefix, *["?"] * count]) for count in range(1, len(prefix) + 2)]
    assert [output for output in outputs if output] == [*stack.split(), "end"]


def test_half_of_the_brackets_that_may_open_or_close_open():
    task = lab.build("task", {"name": "dyck", "types": 3, "depth": 6, "test_length": [60, 60]})
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    is_open = (arrays.tokens >= 1) & (arrays.tokens <= 3)
    depth = np.where(is_open, 1, -1).cumsum(1)  # behind each token
    assert depth.min() == 0 and depth.max() == 6 and (depth[:, -1] == 1).all()
    before, is_early = depth[:, :-1], np.arange(58) < 40
    is_free = (before > 0) & (before < 6) & is_early
    share = is_open[:, 1:][is_free].mean()
    assert abs(share - 0.5) < 4 * 0.5 / is_free.sum() ** 0.5
    assert is_open[:, 1:][before == 0].all() and not is_open[:, 1:][before == 6].any()
