"""Random expressions in brackets, one level of nesting of all examples at a time.

Every piece of an expression is known by the place of its first token, and each random number by the place of the token
that it decides, so that no example depends on another.
"""

import numpy as np

from hqlt_lab.tasks._counter import Draws, Ints, between

PLUS, MINUS, TIMES, ZERO = 1, 2, 3, 5
DIGIT_AT = np.array([0, 0, 1, 1, 2])  # in d, -d, (d), (-d), by length


def expressions(draws: Draws, lengths: Ints, width: int, modulus: int) -> tuple[Ints, Ints]:
    """Tokens [B, width] of expressions of these lengths [B, 1], and their values [B, 1]."""
    tokens, value = np.zeros((2, len(lengths) * width), dtype=np.int64)
    digit = draws.integers("digit", 0, modulus - 1, width).ravel()
    operator = draws.integers("operator", PLUS, TIMES, width).ravel()
    cut = draws.words("cut", width).ravel()
    opening, closing = ZERO + modulus, ZERO + modulus + 1

    start, length, nested = np.arange(len(lengths)) * width, lengths[:, 0], []
    while len(start):
        bracketed = length >= 3
        tokens[start[bracketed]], tokens[(start + length - 1)[bracketed]] = opening, closing
        write_leaves(start[length < 5], length[length < 5], digit, tokens, value, modulus)
        start, length = start[length >= 5], length[length >= 5]
        left = between(cut[start], 1, length - 4)
        middle = start + 1 + left
        tokens[middle] = operator[middle]
        nested.append((start, middle))
        start, length = np.concatenate([start + 1, middle + 1]), np.concatenate([left, length - 3 - left])
    for start, middle in reversed(nested):
        value[start] = apply(operator[middle], value[start + 1], value[middle + 1]) % modulus
    return tokens.reshape(-1, width), value[::width, None]


def write_leaves(start: Ints, length: Ints, digit: Ints, tokens: Ints, value: Ints, modulus: int) -> None:
    """d, -d, (d) and (-d) without their brackets."""
    place, negative = start + DIGIT_AT[length], length % 2 == 0
    tokens[place] = ZERO + digit[place]
    tokens[place[negative] - 1] = MINUS
    value[start] = np.where(negative, -digit[place], digit[place]) % modulus


def apply(operator: Ints, one: Ints, other: Ints) -> Ints:
    return np.where(operator == PLUS, one + other, np.where(operator == MINUS, one - other, one * other))


def how_many(length: int, modulus: int) -> int:
    """Different expressions of that length."""
    counts = [0] + [modulus] * 4
    for longer in range(5, length + 1):
        counts.append(3 * sum(counts[left] * counts[longer - 3 - left] for left in range(1, longer - 3)))
    return counts[length]
