"""Every label again, by a slow program that reads what the model reads and nothing after it."""

import pytest
import torch

from hqlt_lab.registry import find
from tests.tasks.conftest import GENERATED

EXAMPLES = 40


def letters(task, tokens):
    return [task.alphabet[token] for token in tokens]


def parity(task, read):
    return str(read.count("1") % 2)


def even_pairs(task, read):
    return "0" if read[0] == read[-1] else "1"


def cycle_navigation(task, read):
    return f"@{sum(0 if word == 'stay' else int(word) for word in read) % task.places}"


def modular_arithmetic(task, read):
    expression = "".join(read).removesuffix("=")
    if expression[-1] in "+-*":
        return None
    return str(eval(expression, {"__builtins__": {}}) % task.modulus)


def permutation_composition(task, read):
    things = list(range(len(read[0])))
    where = list(things)  # where each thing has gone so far
    for word in read:
        where = [int(word[place]) for place in where]
    return "".join(map(str, where))


def associative_recall(task, read):
    shown = {key: value for key, value in zip(read[::2], read[1::2], strict=False) if value.startswith("v")}
    asked = read[-1].startswith("k") and len(read) > 2 * task.pairs
    return shown[read[-1]] if asked else None


def selective_copying(task, read):
    symbols = [word for word in read if word.startswith("s")]
    return symbols[read.count("?") - 1] if read[-1] == "?" else None


def induction(task, read):
    return read[read.index("?") + 1] if read.count("?") == 2 else None


TRUTH = {
    "parity": parity,
    "even_pairs": even_pairs,
    "cycle_navigation": cycle_navigation,
    "modular_arithmetic": modular_arithmetic,
    "permutation_composition": permutation_composition,
    "associative_recall": associative_recall,
    "selective_copying": selective_copying,
    "induction": induction,
}


def test_every_task_of_the_shelf_has_a_slow_truth():
    ours = {name for name in GENERATED if find("task", name).__module__.startswith("hqlt_lab.tasks.")}
    assert ours == set(TRUTH)


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_are_what_the_text_up_to_them_says(task, split):
    truth = next(slow for name, slow in TRUTH.items() if type(task) is find("task", name))
    batch = task.examples(split, 0, 0, EXAMPLES)
    for row in range(EXAMPLES):
        words = letters(task, batch.tokens[row, : batch.lengths[row] - task.unread].tolist())
        for place in range(len(words)):
            if batch.labels[row, place] >= 0:
                assert task.alphabet[batch.labels[row, place]] == truth(task, words[: place + 1])


def test_everything_that_has_an_answer_is_asked(task):
    """All queries, marks and prefixes; with `label: last` the last token alone."""
    truth = next(slow for name, slow in TRUTH.items() if type(task) is find("task", name))
    batch = task.examples("train", 1, 0, EXAMPLES)
    for row in range(EXAMPLES):
        words = letters(task, batch.tokens[row, : batch.lengths[row] - task.unread].tolist())
        last_only = getattr(task, "label", "every") == "last"
        due = [
            place == len(words) - 1 if last_only else truth(task, words[: place + 1]) is not None
            for place in range(len(words))
        ]
        assert (batch.labels[row, : len(words)] >= 0).tolist() == due


def test_the_label_option_changes_what_is_asked_and_nothing_else():
    for name in ("parity", "even_pairs", "cycle_navigation", "modular_arithmetic", "permutation_composition"):
        last, every = (find("task", name)(label=label).examples("test", 0, 0, 50) for label in ("last", "every"))
        assert torch.equal(last.tokens, every.tokens) and torch.equal(last.lengths, every.lengths)
        asked = last.labels >= 0
        assert (asked.sum(1) == 1).all() and torch.equal(last.labels[asked], every.labels[asked])
