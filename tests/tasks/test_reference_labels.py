"""Labels agree with slow reference implementations that see only the tokens up to the label."""

from collections import Counter
from functools import cache
from itertools import groupby

import numpy as np
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


def forgetting_recall(task, prefix):
    shown = 2 * (task.pairs + task.updates)
    latest = dict(zip(prefix[0:shown:2], prefix[1:shown:2], strict=False))
    return latest[prefix[-1]] if prefix[-1].startswith("k") and len(prefix) > shown else None


def compositional_recall(task, prefix):
    shown = 3 * task.pairs
    stored = {(prefix[i], prefix[i + 1]): prefix[i + 2] for i in range(0, min(shown, len(prefix) - 2), 3)}
    return stored[prefix[-2], prefix[-1]] if prefix[-1].startswith("b") and len(prefix) > shown else None


def selective_copying(task, prefix):
    symbols = [token for token in prefix if token.startswith("s")]
    if task.marks == "one":
        return symbols[len(prefix) - prefix.index("?") - 2] if "?" in prefix[:-1] else None
    return symbols[prefix.count("?") - 1] if prefix[-1] == "?" else None


def last_example(prefix):
    """Return the parts between the bars of the last example of a packed row."""
    start = len(prefix) - 1 - prefix[::-1].index("$")
    parts = [[]]
    for token in prefix[start + 1 :]:
        if token == "|":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def next_letter(answer, written):
    """Return the letter behind those that are written, then the end, then nothing."""
    return [*answer, "."][len(written)] if "." not in written else None


def copying(task, prefix):
    string, *written = last_example(prefix)
    return next_letter(string, written[0]) if written else None


def follow(string, query):
    """Return what follows the query at its first position in the string."""
    starts = [i for i in range(len(string)) if string[i : i + len(query)] == query]
    return string[starts[0] + len(query) :]


def ngram_lookup(task, prefix):
    parts = last_example(prefix)
    if task.query == "first":
        return next_letter(follow(parts[1], parts[0]), parts[2]) if len(parts) == 3 else None
    if len(parts) < 2 or len(parts[1]) < task.length:
        return None
    return next_letter(follow(parts[0], parts[1][: task.length]), parts[1][task.length :])


def dyck(task, prefix):
    """Return what closes the last open bracket; which brackets close does not follow from the tokens before them."""
    open_types = []
    for token in prefix:
        if token.startswith("("):
            open_types.append(token[1:])
        else:
            assert open_types.pop() == token[1:]
    assert len(open_types) <= task.depth
    return f"){open_types[-1]}" if open_types else None


def read_transduction(prefix, transduce):
    """Return the symbol of the last mark, for the function that maps the input to the output."""
    if prefix[-1] != "?":
        return None
    start = prefix.index("?")
    output, mark = transduce(prefix[:start]), len(prefix) - start - 1
    return output[mark] if mark < len(output) else None


def stack_manipulation(task, prefix):
    def run(program):
        stack = []
        for operation in program:
            if operation == "pop":
                stack = stack[:-1]
            else:
                stack.append(operation[-1])
        return [*reversed(stack), "end"]

    return read_transduction(prefix, run)


def string_transduction(task, prefix):
    functions = {
        "reverse": lambda symbols: symbols[::-1],
        "duplicate": lambda symbols: symbols + symbols,
        "odds_first": lambda symbols: symbols[::2] + symbols[1::2],
        "sort": sorted,
    }
    return read_transduction(prefix, functions[task.operation])


def in_context_recall(task, prefix):
    if len(prefix) % 2 == 0:
        return None
    pairs = zip(prefix[0:-1:2], prefix[1::2], strict=True)
    return {key: value for key, value in pairs if key.startswith("k")}.get(prefix[-1])


def fuzzy_recall(task, prefix):
    """Cut the row into runs of tokens of keys and of values, and look up the last run of keys."""
    runs = [list(run) for kind, run in groupby(prefix, key=lambda token: token[0]) if kind in "kv"]
    keys, values = [tuple(run) for run in runs[0::2]], runs[1::2]
    if not keys:
        return None
    current = values[-1] if prefix[-1].startswith("v") else []
    stored = dict(zip(keys[:-1], values, strict=False)).get(keys[-1], [])
    return stored[len(current)] if len(current) < len(stored) else None


def memorization(task, prefix):
    if prefix[-1] != "?":
        return None
    return learn_table(task.keys, task.map_seed)[prefix[-2]]


@cache
def learn_table(keys, map_seed):
    """Return the value of each key, as other rows show it."""
    task = find_factory("task", "memorization")(keys=keys, map_seed=map_seed)
    arrays = task.generate_arrays("train", 3, 0, 500)
    columns = np.nonzero(arrays.labels >= 0)
    pairs = zip(arrays.tokens[columns[0], columns[1] - 1], arrays.labels[columns], strict=True)
    return {task.alphabet[key]: task.alphabet[value] for key, value in pairs}


def induction(task, prefix):
    return prefix[prefix.index("?") + 1] if prefix.count("?") == 2 else None


def ruler(task, prefix):
    if "?" not in prefix:
        return None
    context, asked = prefix[: prefix.index("?")], prefix[prefix.index("?") + 1 :]
    size = {"niah_multikey_3": 4, "cwe": 0, "fwe": 0}.get(task.kind, 1)
    subject, written = asked[:size], asked[size:]
    if len(subject) < size:
        return None
    facts = [token for token in context if not token.startswith("f")]
    if task.kind == "vt":
        values = {}
        for name, source in zip(facts[0::2], facts[1::2], strict=True):
            values[name] = values.get(source, source)
        answer = [name for name, value in values.items() if value == subject[0]]
    elif task.kind == "cwe":
        frequent = [word for word, count in Counter(facts).items() if count > 1]
        assert len(frequent) == 10 and len(set(facts)) == len(facts) - 50
        answer = sorted(frequent, key=facts.index)
    elif task.kind == "fwe":
        answer = [word for word, _ in Counter(facts).most_common(4)[1:]]
    else:
        starts = range(0, len(facts), 2 * size)
        stored = {tuple(facts[i : i + size]): facts[i + size : i + 2 * size] for i in starts}
        assert len(stored) == len(starts)  # all keys differ
        answer = stored[tuple(subject)]
    return answer[len(written)] if len(written) < len(answer) else None


def word_problem(task, prefix):
    elements = [token for token in prefix if token not in ("bos", ".")]
    if not elements:
        return "bos"
    if len([token for token in prefix if token != "bos"]) % task.tokens_per_element:
        return None
    product = elements[0]
    for element in elements[1:]:
        first, second = (product, element) if task.newest_acts == "last" else (element, product)
        product = apply_second_after_first(first, second, task.group)
    return product


def apply_second_after_first(first, second, group):
    """Return the name of the product of two elements, factor by factor; `first` acts first."""
    factors = zip(group.split("x"), first.split("x"), second.split("x"), strict=True)
    return "x".join(
        str((int(a) + int(b)) % int(name[1:])) if name[0] == "Z" else "".join(b[int(image)] for image in a)
        for name, a, b in factors
    )


def state_based_recall(task, prefix):
    """Interpret the row: assign addresses, swap variables, read the value at the address of the queried variable."""
    if prefix[-2:-1] not in (["check"], ["query"]):
        return None
    values, program = prefix[: task.items], prefix[task.items + 1 :]
    operations = program.index("ops")
    address = dict(zip(program[0:operations:2], program[1:operations:2], strict=True))
    rest = program[operations + 1 :]
    while rest[0] != "query":
        if rest[0] == "check":
            if len(rest) == 2:  # the label of a check is its address
                return address[rest[1]]
            assert address[rest[1]] == rest[2]
            rest = rest[3:]
        else:
            one, other = rest[:2]
            address[one], address[other] = address[other], address[one]
            rest = rest[2:]
    return values[int(address[rest[1]][1:])]


def tracked_recall(task, prefix):
    elements = len([name for name in task.alphabet if name.startswith("g")])
    table_tokens = 3 * elements * task.tags
    if len(prefix) <= table_tokens or not prefix[-1].startswith("t"):
        return None
    table = {prefix[i : i + 2][0][1:] + prefix[i + 1]: prefix[i + 2] for i in range(0, table_tokens, 3)}
    state = task.alphabet[1][1:]  # the identity
    for token in prefix[table_tokens:]:
        if token.startswith("g"):
            state = apply_second_after_first(state, token[1:], task.group)
    return table[state + prefix[-1]]


REFERENCES = {
    "word_problem": word_problem,
    "state_based_recall": state_based_recall,
    "tracked_recall": tracked_recall,
    "parity": parity,
    "even_pairs": even_pairs,
    "cycle_navigation": cycle_navigation,
    "modular_arithmetic": modular_arithmetic,
    "permutation_composition": permutation_composition,
    "associative_recall": associative_recall,
    "forgetting_recall": forgetting_recall,
    "compositional_recall": compositional_recall,
    "copying": copying,
    "ngram_lookup": ngram_lookup,
    "dyck": dyck,
    "stack_manipulation": stack_manipulation,
    "string_transduction": string_transduction,
    "in_context_recall": in_context_recall,
    "fuzzy_recall": fuzzy_recall,
    "memorization": memorization,
    "selective_copying": selective_copying,
    "induction": induction,
    "ruler": ruler,
}


# tasks whose labels are random, with tests of their own
RANDOM_LABELS = {"in_context_languages"}


def find_reference(task):
    """Return the reference of a task.  Skips the test if its labels are random."""
    if type(task) in (find_factory("task", name) for name in RANDOM_LABELS):
        pytest.skip("several labels are right")
    return next(reference for name, reference in REFERENCES.items() if type(task) is find_factory("task", name))


def test_every_built_in_task_has_a_reference_implementation():
    built_in = {name for name in GENERATED if find_factory("task", name).__module__.startswith("hqlt_lab.tasks.")}
    assert built_in == set(REFERENCES) | RANDOM_LABELS


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
    """All queries, marks and prefixes; with `label: last` only the last token.  In training, checks and bos too."""
    if getattr(task, "fill", "blank") == "random" or type(task).__name__ == "FuzzyRecall":
        return  # a random token may look like a query, and the beginning of a longer key like a known one
    if getattr(task, "packed", None) is not None:
        return  # the last example of a row is cut and has no labels
    if type(task).__name__ == "Dyck":
        return  # a bracket may open where another one could close
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
    for name in (
        "parity",
        "even_pairs",
        "cycle_navigation",
        "modular_arithmetic",
        "permutation_composition",
        "word_problem",
    ):
        last, every = (
            find_factory("task", name)(label=label).get_examples("test", 0, 0, 50) for label in ("last", "every")
        )
        assert torch.equal(last.tokens, every.tokens) and torch.equal(last.lengths, every.lengths)
        labeled = last.labels >= 0
        assert (labeled.sum(1) == 1).all() and torch.equal(last.labels[labeled], every.labels[labeled])
