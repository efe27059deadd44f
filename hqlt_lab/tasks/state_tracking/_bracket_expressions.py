"""Generate random bracketed expressions for all examples at once, one nesting level at a time.

Every subexpression is identified by the position of its first token, and every random number by the position of the
token it determines, so no example depends on another.
"""

import numpy as np

from hqlt_lab.tasks._counter_rng import CounterRng, IntArray, bits_to_integers

PLUS, MINUS, TIMES, ZERO = 1, 2, 3, 5
DIGIT_OFFSET = np.array([0, 0, 1, 1, 2])  # position of the digit in d, -d, (d), (-d), by length


def draw_expressions(
    rng: CounterRng, lengths: IntArray, width: int, modulus: int, operators: int
) -> tuple[IntArray, IntArray]:
    """Return the tokens [B, width] of expressions of these lengths [B, 1], and their values [B, 1].

    The operators are tokens 1 to `operators`.
    """
    tokens, value = np.zeros((2, len(lengths) * width), dtype=np.int64)
    digit = rng.integers("digit", 0, modulus - 1, width).ravel()
    operator = rng.integers("operator", PLUS, operators, width).ravel()
    cut = rng.random_bits("cut", width).ravel()
    opening, closing = ZERO + modulus, ZERO + modulus + 1

    start, length, nested = np.arange(len(lengths)) * width, lengths[:, 0], []
    while len(start):
        bracketed = length >= 3
        tokens[start[bracketed]], tokens[(start + length - 1)[bracketed]] = opening, closing
        write_leaves(start[length < 5], length[length < 5], digit, tokens, value, modulus)
        start, length = start[length >= 5], length[length >= 5]
        left_length = bits_to_integers(cut[start], 1, length - 4)
        middle = start + 1 + left_length
        tokens[middle] = operator[middle]
        nested.append((start, middle))
        start, length = np.concatenate([start + 1, middle + 1]), np.concatenate([left_length, length - 3 - left_length])
    for start, middle in reversed(nested):
        value[start] = apply_operator(operator[middle], value[start + 1], value[middle + 1]) % modulus
    return tokens.reshape(-1, width), value[::width, None]


def write_leaves(
    start: IntArray, length: IntArray, digit: IntArray, tokens: IntArray, value: IntArray, modulus: int
) -> None:
    """Write the digits and signs of the leaves d, -d, (d) and (-d); the brackets are already there."""
    position, negative = start + DIGIT_OFFSET[length], length % 2 == 0
    tokens[position] = ZERO + digit[position]
    tokens[position[negative] - 1] = MINUS
    value[start] = np.where(negative, -digit[position], digit[position]) % modulus


def apply_operator(operator: IntArray, left: IntArray, right: IntArray) -> IntArray:
    return np.where(operator == PLUS, left + right, np.where(operator == MINUS, left - right, left * right))


def count_expressions(length: int, modulus: int, operators: int) -> int:
    """Return the number of different expressions of this length."""
    counts = [0] + [modulus] * 4
    for total in range(5, length + 1):
        counts.append(operators * sum(counts[left] * counts[total - 3 - left] for left in range(1, total - 3)))
    return counts[length]
