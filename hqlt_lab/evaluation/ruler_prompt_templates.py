"""Prompts of the six tasks of RULER that need no download, word for word.

From https://github.com/NVIDIA/RULER, Copyright (c) 2024, NVIDIA CORPORATION, under the Apache License 2.0.
"""

from typing import NamedTuple


class RulerPrompt(NamedTuple):
    """A question around a context, and how the answer begins."""

    template: str  # with {context} and {query}
    answer_prefix: str
    answer_tokens: int  # tokens that are generated


NEEDLE = "One of the special magic {kind} for {key} is: {value}."
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

NEEDLES_PROMPT = RulerPrompt(
    "Some special magic {kind} are hidden within the following text. Make sure to memorize it. I will quiz you about "
    "the {kind} afterwards.\n{context}\nWhat are all the special magic {kind} for {query} mentioned in the provided "
    "text?",
    " The special magic {kind} for {query} mentioned in the provided text are",
    128,
)
VARIABLES_PROMPT = RulerPrompt(
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: Find "
    "all variables that are assigned the value {query} in the text above.",
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables are assigned the "
    "value {query}, they are: ",
    30,
)
COMMON_WORDS_PROMPT = RulerPrompt(
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list?",
    " Answer: The top 10 words that appear most often in the list are:",
    120,
)
FREQUENT_WORDS_PROMPT = RulerPrompt(
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three most frequently appeared words in the above coded text?",
    " Answer: According to the coded text above, the three most frequently appeared words are:",
    50,
)


def write_singular(text: str) -> str:
    """Return a prompt for one needle, as the published generator changes its words."""
    return text.replace("Some", "A").replace("are all", "is").replace("are", "is")
