"""Samples of six tasks of RULER: a long prompt, the beginning of the answer, and what the answer has to name.

    niah_single_1      filler lines and one needle: a key and its number of 7 digits       the number of the key
    niah_multikey_2    every line is a needle                                              the number of one key
    niah_multikey_3    the same with UUIDs as keys and values                              the UUID of one key
    vt                 filler lines and a chain of 5 variables, each assigned to the next  all 5 variables
    cwe                a numbered list of words, 10 of which are more frequent             the 10 words
    fwe                coded words; rank k is used in proportion to 1 / k^2                ranks 2, 3 and 4

Rank 1 of `fwe` is printed as dots.  `vt` and `cwe` begin with a solved example.

The size of a sample is a number of units: lines in the first four tasks, different words in `cwe`, all words in `fwe`.
A sample is a function of the task, its size and its number.

Hsieh et al. 2024, arXiv:2404.06654.  Different from the published generators: the words, since those come from a
package; words are shuffled anew in each sample, where the published lists have frequent words at the same places in all
samples; the names of a chain differ; and the example of `vt` has the fewest possible lines.
"""

import random
import string
import uuid
from collections.abc import Callable
from typing import NamedTuple

from hqlt_lab.evaluation.ruler_prompt_templates import (
    COMMON_WORDS_PROMPT,
    FILLER,
    FREQUENT_WORDS_PROMPT,
    NEEDLE,
    NEEDLES_PROMPT,
    VARIABLES_PROMPT,
    RulerPrompt,
    write_singular,
)
from hqlt_lab.evaluation.ruler_words import ADJECTIVES, NOUNS, compounds, list_words

ZETA_2 = 1.6449340668482264  # sum over k of 1 / k^2
CHAIN_LENGTH = 5  # variables
SHORT_CONTEXT = 4096  # tokens below which the words of `cwe` are less frequent
TOKENS_PER_CODED_WORD = 50  # the vocabulary of `fwe` grows with the context


class RulerSample(NamedTuple):
    """A prompt and the strings that the answer should have."""

    prompt: str
    answer_prefix: str
    references: list[str]


class RulerTask(NamedTuple):
    """A generator of samples."""

    write: Callable[[random.Random, int, int], RulerSample]  # from a generator, the units and the tokens of the context
    prompt: RulerPrompt
    min_units: int
    max_units: int = 10_000_000


def write_sample(name: str, units: int, length: int, number: int) -> RulerSample:
    """Return a sample of a task with this number of units, for a context of `length` tokens."""
    return RULER_TASKS[name].write(random.Random(f"ruler {name} {number}"), units, length)


def write_number_in_filler(rng: random.Random, units: int, length: int) -> RulerSample:
    key, value = draw_word_key(rng), draw_number(rng)
    lines = [FILLER] * units
    lines.insert(rng.randrange(units), format_needle("numbers", key, value))
    return ask_for_needle("number", lines, key, value)


def write_number_among_needles(rng: random.Random, units: int, length: int) -> RulerSample:
    return write_needles(rng, units, "numbers", draw_word_key, draw_number)


def write_uuid_among_needles(rng: random.Random, units: int, length: int) -> RulerSample:
    return write_needles(rng, units, "uuids", draw_uuid, draw_uuid)


def write_needles(
    rng: random.Random,
    units: int,
    kind: str,
    draw_key: Callable[[random.Random], str],
    draw_value: Callable[[random.Random], str],
) -> RulerSample:
    """Return a sample in which every line is a needle.  All keys differ."""
    keys: dict[str, None] = {}
    while len(keys) <= units:
        keys[draw_key(rng)] = None
    values = [draw_value(rng) for _ in keys]
    lines = [format_needle(kind, key, value) for key, value in zip(keys, values, strict=True)]
    queried = rng.randrange(len(lines))
    return ask_for_needle(kind.removesuffix("s"), lines, list(keys)[queried], values[queried])


def ask_for_needle(kind: str, lines: list[str], key: str, value: str) -> RulerSample:
    """Return the question for the value of a key.  `kind` is in the singular."""
    template, prefix, _ = NEEDLES_PROMPT
    prompt = write_singular(template).format(kind=kind, context="\n".join(lines), query=key)
    return RulerSample(prompt, write_singular(prefix).format(kind=kind, query=key), [value])


def format_needle(kind: str, key: str, value: str) -> str:
    return NEEDLE.format(kind=kind, key=key, value=value)


def draw_word_key(rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"


def draw_number(rng: random.Random) -> str:
    return str(rng.randint(1_000_000, 9_999_999))


def draw_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def write_variables(rng: random.Random, units: int, length: int) -> RulerSample:
    example = write_chain(rng, CHAIN_LENGTH, letters=3)
    sample = write_chain(rng, units, letters=5)
    solved = f"{example.prompt}{example.answer_prefix}{' '.join(example.references)}\n\n"
    return sample._replace(prompt=solved + sample.prompt)


def write_chain(rng: random.Random, units: int, letters: int) -> RulerSample:
    """Return filler lines with a chain of assignments between them, in order."""
    names: dict[str, None] = {}
    while len(names) < CHAIN_LENGTH:
        names["".join(rng.choices(string.ascii_uppercase, k=letters))] = None
    variables, value = list(names), str(rng.randint(10_000, 99_999))
    sources = [value, *(f"VAR {name} " for name in variables[:-1])]
    assignments = [f"VAR {name} = {source}" for name, source in zip(variables, sources, strict=True)]
    lines = [FILLER] * units
    for shift, position in enumerate(sorted(rng.sample(range(units), CHAIN_LENGTH))):
        lines.insert(position + shift, assignments[shift])
    template, prefix, _ = VARIABLES_PROMPT
    return RulerSample(
        template.format(context="\n".join(lines), query=value),
        prefix.format(count=CHAIN_LENGTH, query=value),
        variables,
    )


def write_common_words(rng: random.Random, units: int, length: int) -> RulerSample:
    is_short = length < SHORT_CONTEXT
    example_words, example_common = write_word_list(rng, *((20, 3, 1) if is_short else (40, 10, 3)))
    words, common = write_word_list(rng, units, *((6, 1) if is_short else (30, 3)))
    template, prefix, _ = COMMON_WORDS_PROMPT
    solved = f"{template.format(context=example_words)}{prefix} {number_words(example_common)}\n"
    return RulerSample(solved + template.format(context=words), prefix, common)


def write_word_list(rng: random.Random, units: int, common_repeats: int, repeats: int) -> tuple[str, list[str]]:
    """Return a shuffled list of `units` different words, and the 10 of them that occur more often."""
    words = rng.sample(list_words(units), units)
    repeated = words[:10] * common_repeats + words[10:] * repeats
    rng.shuffle(repeated)
    return number_words(repeated), words[:10]


def number_words(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))


def write_frequent_words(rng: random.Random, units: int, length: int) -> RulerSample:
    template, prefix, answer_tokens = FREQUENT_WORDS_PROMPT
    vocabulary: dict[str, None] = {"...": None}
    while len(vocabulary) < max((length - answer_tokens) // TOKENS_PER_CODED_WORD, 4):
        vocabulary["".join(rng.choices(string.ascii_lowercase, k=6))] = None
    words = [word for rank, word in enumerate(vocabulary, 1) for _ in range(int(units / rank**2 / ZETA_2))]
    rng.shuffle(words)
    return RulerSample(template.format(context=" ".join(words)), prefix, list(vocabulary)[1:4])


# With fewer words, ranks of `fwe` would be equally frequent, and nearly all words of `cwe` would be common.  More than
# half of all keys would take long to draw.
RULER_TASKS = {
    "niah_single_1": RulerTask(write_number_in_filler, NEEDLES_PROMPT, 1),
    "niah_multikey_2": RulerTask(write_number_among_needles, NEEDLES_PROMPT, 1, len(ADJECTIVES) * len(NOUNS) // 2),
    "niah_multikey_3": RulerTask(write_uuid_among_needles, NEEDLES_PROMPT, 1),
    "vt": RulerTask(write_variables, VARIABLES_PROMPT, CHAIN_LENGTH),
    "cwe": RulerTask(write_common_words, COMMON_WORDS_PROMPT, 20, len(compounds())),
    "fwe": RulerTask(write_frequent_words, FREQUENT_WORDS_PROMPT, 100),
}
