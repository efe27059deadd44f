"""Labels agree with slow reference implementations that see only the tokens up to the label."""

import pytest
import torch

from hqlt_lab.registry import find_factory
from tests.tasks.conftest import GENERATED

EXAMPLES = 40


def token_texts(task, tokens):
    return [task.alphabet[token] for token in tokens]


def parity(task, prefix):
    return str(prefix.count("1") % 2)


def even_pairs(task, prefix):
    return "0" if prefix[0] == prefix[-1] else "1"


def cycle_navigation(task, prefix):
    return f"@{sum(0 if step == 'stay' else int(step) for step in prefix) % task.cycle_length}"


def modular_arithmetic(task, prefix):
    expression = "".join(prefix).removesuffix("=")
    if expression[-1] in "+-*":
        return None
    return str(eval(expression, {"__builtins__": {}}) % task.modulus)


def permutation_composition(task, prefix):
    images = list(range(len(prefix[0])))  # image of each element under the product so far
    for permutation in prefix:
        images = [int(permutation[image]) for image in images]
    return "".join(map(str, images))


def associative_recall(task, prefix):
    pairs = dict(zip(prefix[0 : 2 * task.pairs : 2], prefix[1 : 2 * task.pairs : 2], strict=False))
    is_query = prefix[-1].startswith("k") and len(prefix) > 2 * task.pairs
    return pairs[prefix[-1]] if is_query else None


def selective_copying(task, prefix):
    symbols = [token for token in prefix if token.startswith("s")]
    return symbols[prefix.count("?") - 1] if prefix[-1] == "?" else None


def induction(task, prefix):
    return prefix[prefix.index("?") + 1] if prefix.count("?") == 2 else None


REFERENCES = {
    "parity": parity,
    "even_pairs": even_pairs,
    "cycle_navigation": cycle_navigation,
    "modular_arithmetic": modular_arithmetic,
    "permutation_composition": permutation_composition,
    "associative_recall": associative_recall,
    "selective_copying": selective_copying,
    "induction": induction,
}


def find_reference(task):
    return next(reference for name, reference in REFERENCES.items() if type(task) is find_factory("task", name))


def test_every_built_in_task_has_a_reference_implementation():
    built_in = {name for name in GENERATED if find_factory("task", name).__module__.startswith("hqlt_lab.tasks.")}
    assert built_in == set(REFERENCES)


@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_agree_with_the_reference(task, split):
    reference = find_reference(task)
    batch = task.get_examples(split, 0, 0, EXAMPLES)
    for row in range(EXAMPLES):
        texts = token_texts(task, batch.tokens[row, : batch.lengths[row] - task.unread_tokens].tolist())
        for position in range(len(texts)):
            if batch.labels[row, position] >= 0:
                assert task.alphabet[batch.labels[row, position]] == reference(task, texts[: position + 1])


def test_every_position_with_an_answer_is_labeled(task):
    """All queries, marks and prefixes; with `label: last` only the last token."""
    if getattr(task, "fill", "blank") == "random":
        return  # a random token may look like a query
    reference = find_reference(task)
    batch = task.get_examples("train", 1, 0, EXAMPLES)
    for row in range(EXAMPLES):
        texts = token_texts(task, batch.tokens[row, : batch.lengths[row] - task.unread_tokens].tolist())
        last_only = getattr(task, "label", "every") == "last"
        expected = [
            position == len(texts) - 1 if last_only else reference(task, texts[: position + 1]) is not None
            for position in range(len(texts))
        ]
        assert (batch.labels[row, : len(texts)] >= 0).tolist() == expected


def test_label_option_changes_only_which_tokens_are_labeled():
    for name in ("parity", "even_pairs", "cycle_navigation", "modular_arithmetic", "permutation_composition"):
        last, every = (
            find_factory("task", name)(label=label).get_examples("test", 0, 0, 50) for label in ("last", "every")
        )
        assert torch.equal(last.tokens, every.tokens) and torch.equal(last.lengths, every.lengths)
        labeled = last.labels >= 0
        assert (labeled.sum(1) == 1).all() and torch.equal(last.labels[labeled], every.labels[labeled])
