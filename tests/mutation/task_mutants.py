"""Planted bugs in the tasks of published protocols, and in the layers that their models need."""

from tests.mutation._mutant import Mutant

LABELS, SETS = ("tests/tasks/test_reference_labels.py",), ("tests/tasks/test_training_sets.py",)
MAD, STRINGS = ("tests/tasks/test_mad_statistics.py",), ("tests/tasks/test_string_statistics.py",)
LANGUAGES = ("tests/tasks/test_in_context_languages.py",)
RULER = ("tests/evaluation/test_ruler.py",)
RECALL = "hqlt_lab/tasks/recall"

IN_PROTOCOLS = [
    Mutant(
        "an updated key keeps its first value",
        f"{RECALL}/forgetting_recall.py",
        "        latest[rows, updated] = new_values\n",
        "",
        LABELS,
    ),
    Mutant(
        "a new value may be the first one",
        f"{RECALL}/forgetting_recall.py",
        'rng.integers("new value", 1, self.values - 1, self.updates)',
        'rng.integers("new value", 0, self.values - 1, self.updates)',
        ("tests/tasks/test_recall_statistics.py",),
    ),
    Mutant(
        "the last key may never have been shown",
        f"{RECALL}/in_context_recall.py",
        "np.where(shown, preference, -1.0)",
        "np.where(shown, preference, preference)",
        ("tests/tasks/test_task_contract.py",),
    ),
    Mutant(
        "a known value is not labeled",
        f"{RECALL}/fuzzy_recall.py",
        "is_answer[rows, column] = is_known",
        "is_answer[rows, column] = is_known & (offset < 1)",
        MAD,
    ),
    Mutant(
        "the table depends on the run",
        f"{RECALL}/memorization.py",
        "self.table[key]",
        'rng.permutations("values", self.keys)[0][key]',
        LABELS,
    ),
    Mutant(
        "a predicted class without labels does not count",
        "hqlt_lab/tasks/_macro_accuracy.py",
        "is_class = counts + predicted_counts > 0",
        "is_class = counts > 0",
        MAD,
    ),
    Mutant(
        "a cut example has labels",
        "hqlt_lab/tasks/copying/_string_task.py",
        "is_whole = is_inside & (end <= width)[:, None]",
        "is_whole = is_inside",
        STRINGS,
    ),
    Mutant(
        "an empty stack is popped",
        "hqlt_lab/tasks/stacks/stack_manipulation.py",
        "np.maximum(height - 1, 0), height)",
        "height - 1, height)",
        LABELS,
    ),
    Mutant(
        "brackets are deeper than declared",
        "hqlt_lab/tasks/stacks/dyck.py",
        "& (depth < self.depth) & (depth < remaining)",
        "& (depth < self.depth + 1) & (depth < remaining)",
        (*LABELS, *STRINGS),
    ),
    Mutant(
        "a stage begins one step late",
        "hqlt_lab/tasks/_task_variants.py",
        "return sum(end <= step for end in ends)",
        "return sum(end < step for end in ends)",
        SETS,
    ),
    Mutant(
        "a gated convolution forgets its input",
        "hqlt_lab/model/gated_convolution.py",
        "return convolved * self.to_gate(x) + x, MemoryState",
        "return convolved * self.to_gate(x), MemoryState",
        ("tests/model/test_model.py",),
    ),
    Mutant(
        "a walk begins at a random state",
        "hqlt_lab/tasks/state_tracking/_random_automata.py",
        "state = np.broadcast_to(first_state, (count, walks))",
        'state = first_state + rng.integers("start", 0, 1, walks)',
        LANGUAGES,
    ),
    Mutant(
        "a state may lead to itself",
        "hqlt_lab/tasks/state_tracking/_random_automata.py",
        " & ~np.eye(most_states, dtype=bool)",
        " & np.ones((most_states, most_states), dtype=bool)",
        LANGUAGES,
    ),
    Mutant(
        "the distance counts only legal tokens",
        "hqlt_lab/tasks/state_tracking/in_context_languages.py",
        "logits.double().softmax(-1) - true).abs().sum(-1)",
        "logits.double().softmax(-1) - true).abs().mul(is_legal).sum(-1)",
        LANGUAGES,
    ),
    Mutant(
        "an n-gram does not see the beginning of a string",
        "hqlt_lab/tasks/state_tracking/_ngram_guessing.py",
        "            context = (separator,)\n",
        "            context = ()\n",
        LANGUAGES,
    ),
    Mutant(
        "a chain of variables begins again in the middle",
        "hqlt_lab/evaluation/ruler_samples.py",
        'f"VAR {name} " for name in variables[:-1]',
        'f"VAR {variables[0]}X " for name in variables[:-1]',
        RULER,
    ),
    Mutant(
        "a context of RULER leaves no room for the answer",
        "hqlt_lab/evaluation/ruler_evaluation.py",
        "num_tokens + RULER_TASKS[name].prompt.answer_tokens <= length",
        "num_tokens <= length",
        RULER,
    ),
    Mutant(
        "the most frequent coded word is an answer",
        "hqlt_lab/evaluation/ruler_samples.py",
        "list(vocabulary)[1:4]",
        "list(vocabulary)[0:3]",
        RULER,
    ),
    Mutant(
        "a query that occurs twice is asked",
        "hqlt_lab/tasks/copying/ngram_lookup.py",
        "(positions < (sizes - self.length)[:, None]) & ~is_repeated[:, :-1]",
        "positions < (sizes - self.length)[:, None]",
        (*LABELS, *STRINGS),
    ),
    Mutant(
        "inputs of compositional recall are counted in every order of the keys",
        f"{RECALL}/compositional_recall.py",
        " // factorial(self.side) ** 2\n",
        "\n",
        ("tests/tasks/test_recall_statistics.py",),
    ),
    Mutant(
        "keys of pairs may be equal",
        "hqlt_lab/tasks/copying/ruler.py",
        'keys = rng.distinct_integers("key", 0, num_codes - 1, longest)',
        'keys = rng.integers("key", 0, 9, longest)',
        LABELS,
    ),
    Mutant(
        "filler is missing behind a pair",
        "hqlt_lab/tasks/copying/ruler.py",
        "(columns - 2 * num_before) % FILLER_TOKENS",
        "columns % FILLER_TOKENS",
        ("tests/tasks/test_ruler_statistics.py",),
    ),
]
