"""Modular arithmetic: what is the value of this expression, modulo a small number?

    tokens 1 +, 2 -, 3 *, 4 =, then the digits from 5 on, all uniform            answer 5 + (value mod modulus)

Without brackets, digits and operators alternate up to "=", and products go before sums.  The size counts "=" and the
answer and is always odd: low to high gives 2u - 1 with u uniform from (low + 1) // 2 to (high + 1) // 2.

With brackets, an expression of less than 5 tokens is d, -d, (d) or (-d), and a longer one is (left operator right) with
the left length uniform.  It has size - 3 tokens: the paper's code counts a closing padding too, and lifts sizes below 5
to 5.  A product with 0 is 0 however deep it stands, so that 0 is the commonest answer: three in ten at modulus 5.
Accuracies are normalised by 1 / modulus all the same, as in the paper.
In brackets the paper's code numbers the tokens in another order.

    task: {name: modular_arithmetic, modulus: 5, brackets: false, train_length: [3, 40], test_length: [40, 256]}

Deletang et al. 2022, arXiv:2207.02098; Grazzi et al. 2024, arXiv:2411.12537.  Settings of the HQLT paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._brackets import expressions, how_many
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._state import StateTask

GUESSED = 1024  # examples among which the commonest answer is counted
PLUS, MINUS, TIMES, EQUALS, ZERO = 1, 2, 3, 4, 5


@register("task", "modular_arithmetic")
@dataclass(frozen=True, kw_only=True)
class ModularArithmetic(StateTask):
    modulus: int = 5
    """Digits there are."""
    brackets: bool = False
    """Nested expressions in brackets; the answer is then due at the end only."""

    shortest = 3

    def mistakes(self) -> list[str]:
        found = self.too_small({"modulus": 2})
        if self.brackets and self.label != "last":
            found.append("label: half an expression in brackets has no value. Use last, or brackets: false.")
        return found

    @property
    def unread(self) -> int:
        return 2 if self.brackets else 1

    @property
    def alphabet(self) -> tuple[str, ...]:
        digits = (str(digit) for digit in range(self.modulus))
        return ("_", "+", "-", "*", "=", *digits, *("()" if self.brackets else ""))

    @property
    def chance(self) -> float:
        return 100 / self.modulus

    @property
    def by_guessing(self) -> Mapping[str, float]:
        if not self.brackets:
            return super().by_guessing
        labels = self.examples("test", 0, 0, GUESSED).labels
        zeros = 100 * float((labels[labels >= 0] == ZERO).double().mean())
        return {"accuracy": zeros, "normalised_accuracy": (zeros - self.chance) / (100 - self.chance) * 100}

    def variety(self, size: int) -> int:
        if self.brackets:
            return how_many(size - 3, self.modulus)
        digits = (size - 1) // 2
        return self.modulus**digits * 3 ** (digits - 1)

    def reach(self, low: int, high: int) -> tuple[int, int]:
        if self.brackets:
            return max(low, 5), max(high, 5)
        return (low + 1) // 2 * 2 - 1, (high + 1) // 2 * 2 - 1

    def sizes(self, draws: Draws, low: int, high: int) -> Ints:
        if self.brackets:
            return np.maximum(draws.integers("size", low, high), 5)
        return 2 * draws.integers("size", (low + 1) // 2, (high + 1) // 2) - 1

    def track(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        equals = np.arange(width) == sizes - self.unread - 1  # [B, T]
        if self.brackets:
            tokens, value = expressions(draws, sizes - 3, width, self.modulus)
            answers = np.broadcast_to(value, tokens.shape)
        else:
            tokens, answers = self.chain(draws, width)
            # "=" stands in an operator's place: what is asked there is the value up to the digit before it
            answers[:, 1::2] = np.where(equals[:, 1::2], answers[:, : width - 1 : 2], -1 - ZERO)
        return np.where(equals, EQUALS, tokens), ZERO + answers

    def chain(self, draws: Draws, width: int) -> tuple[Ints, Ints]:
        """Digits and operators in turn, and the value up to each digit, both [B, width]."""
        digit = draws.integers("digit", 0, self.modulus - 1, (width + 1) // 2)
        operator = draws.integers("operator", PLUS, TIMES, width // 2)
        tokens, values = np.zeros((2, len(digit), width), dtype=np.int64)
        tokens[:, ::2], tokens[:, 1::2] = ZERO + digit, operator
        values[:, ::2] = running_values(digit, operator, self.modulus)
        return tokens, values


def running_values(digit: Ints, operator: Ints, modulus: int) -> Ints:
    """The value of d_0 o_1 d_1 ... o_t d_t for every t, products before sums, [B, digits]."""
    term, closed = digit[:, 0], np.zeros_like(digit[:, 0])  # the product that is growing, and the sum of those before
    values = [term]
    for d, o in zip(digit.T[1:], operator.T, strict=False):  # the last operator is where "=" may stand
        grows = o == TIMES
        closed = np.where(grows, closed, closed + term)
        term = np.where(grows, term * d, np.where(o == PLUS, d, -d)) % modulus
        values.append(closed + term)
    return np.stack(values, 1) % modulus
