"""Accuracy of n-gram guessing: the most frequent token behind the same n - 1 tokens, in the row so far.

If these tokens did not occur in the row, fewer of them are compared, down to none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from hqlt_lab.tasks._counter_rng import IntArray

Context = tuple[int, ...]


def ngram_accuracy(tokens: IntArray, labels: IntArray, legal_next: IntArray, order: int, separator: int) -> float:
    """Return the percentage of labeled positions at which the n-gram's guess is a legal token; all [B, T]."""
    legal_guesses = num_labels = 0
    for row in zip(tokens.tolist(), labels.tolist(), legal_next.tolist(), strict=True):
        for position, guess in iter_guesses(row[0], order, separator):
            if row[1][position] >= 0:
                num_labels += 1
                legal_guesses += row[2][position] >> guess & 1
    return 100 * legal_guesses / num_labels


def iter_guesses(tokens: Sequence[int], order: int, separator: int) -> Iterator[tuple[int, int]]:
    """Yield each position and the guess of the token behind it.

    A context does not reach over a separator, but may begin with it.  The first string has one in front of it, too.
    """
    followers: defaultdict[Context, Counter[int]] = defaultdict(Counter)
    context: Context = (separator,)[: order - 1]
    for position, token in enumerate(tokens):
        if token == 0:
            return
        if token == separator:
            context = (separator,)
        else:
            for length in range(len(context) + 1):
                followers[context[len(context) - length :]][token] += 1
            context = (*context, token)
        context = context[max(0, len(context) - order + 1) :]
        known = next(key for start in range(len(context) + 1) if (key := context[start:]) in followers)
        yield position, followers[known].most_common(1)[0][0]
