"""Modular arithmetic: what is the value of this expression, modulo a small number?

    tokens 1 +, 2 -, 3 *, 4 =, then the digits from 5 on, all uniform            label 5 + (value mod modulus)

Without brackets, digits and operators alternate up to "=", and products precede sums.  The size counts "=" and the
answer and is always odd: low to high gives 2u - 1 with u uniform from (low + 1) // 2 to (high + 1) // 2.

With brackets, an expression of fewer than 5 tokens is d, -d, (d) or (-d), and a longer one is (left operator right)
with a uniform length of the left side.  It has size - 3 tokens: the paper's code also counts a padding token at the end
and raises sizes below 5 to 5.  Products with 0 make 0 the most frequent label: 30 % at modulus 5.  Accuracies are
nevertheless normalized by 1 / modulus, as in the paper.  With brackets the paper's code numbers the tokens in another
order.

    task: {name: modular_arithmetic, modulus: 5, brackets: false, train_length: [3, 40], test_length: [40, 256]}

Deletang et al. 2022, arXiv:2207.02098; Grazzi et al. 2024, arXiv:2411.12537.  Settings of the HQLT paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import StateTask
from hqlt_lab.tasks.state_tracking._bracket_expressions import count_expressions, draw_expressions

CHANCE_EXAMPLES = 1024  # examples used to estimate the frequency of the label 0
PLUS, MINUS, TIMES, EQUALS, ZERO = 1, 2, 3, 4, 5


@register("task", "modular_arithmetic")
@dataclass(frozen=True, kw_only=True)
class ModularArithmetic(StateTask):
    modulus: int = 5
    """Number of different digits."""
    brackets: bool = False
    """Generate nested expressions in brackets. Only the last token then has a label."""
    multiplication: bool = True
    """Use products besides sums and differences."""

    min_size = 3

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"modulus": 2})
        if self.brackets and self.label != "last":
            message = "with brackets only the whole expression has a value, so only the last token can have a label."
            hint = "Use last, or brackets: false."
            issues.append(ConfigIssue("label", "label_with_brackets", message, hint))
        return issues

    @property
    def operators(self) -> int:
        """Number of different operators; their tokens are 1, 2, ..."""
        return TIMES if self.multiplication else MINUS

    @property
    def unread_tokens(self) -> int:
        return 2 if self.brackets else 1

    @property
    def alphabet(self) -> tuple[str, ...]:
        digits = (str(digit) for digit in range(self.modulus))
        return ("_", "+", "-", "*", "=", *digits, *("()" if self.brackets else ""))

    @property
    def chance_level(self) -> float:
        return 100 / self.modulus

    @property
    def chance_by_metric(self) -> Mapping[str, float]:
        if not self.brackets:
            return super().chance_by_metric
        labels = self.generate_arrays("test", 0, 0, CHANCE_EXAMPLES).labels
        zeros = 100 * float((labels[labels >= 0] == ZERO).mean())
        return {"accuracy": zeros, "normalized_accuracy": (zeros - self.chance_level) / (100 - self.chance_level) * 100}

    def count_inputs(self, size: int) -> int:
        if self.brackets:
            return count_expressions(size - 3, self.modulus, self.operators)
        digits = (size - 1) // 2
        return self.modulus**digits * self.operators ** (digits - 1)

    def size_range(self, low: int, high: int) -> tuple[int, int]:
        if self.brackets:
            return max(low, 5), max(high, 5)
        return (low + 1) // 2 * 2 - 1, (high + 1) // 2 * 2 - 1

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        if self.brackets:
            return np.maximum(rng.integers("size", low, high), 5)
        return 2 * rng.integers("size", (low + 1) // 2, (high + 1) // 2) - 1

    def track_state(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        equals = np.arange(width) == sizes - self.unread_tokens - 1  # [B, T]
        if self.brackets:
            tokens, value = draw_expressions(rng, sizes - 3, width, self.modulus, self.operators)
            values = np.broadcast_to(value, tokens.shape)
        else:
            tokens, values = self.draw_chain(rng, width)
            # "=" is at the position of an operator: its label is the value up to the digit before it
            values[:, 1::2] = np.where(equals[:, 1::2], values[:, : width - 1 : 2], -1 - ZERO)
        return np.where(equals, EQUALS, tokens), ZERO + values

    def draw_chain(self, rng: CounterRng, width: int) -> tuple[IntArray, IntArray]:
        """Return alternating digits and operators, and the value up to each digit, both [B, width]."""
        digit = rng.integers("digit", 0, self.modulus - 1, (width + 1) // 2)
        operator = rng.integers("operator", PLUS, self.operators, width // 2)
        tokens, values = np.zeros((2, len(digit), width), dtype=np.int64)
        tokens[:, ::2], tokens[:, 1::2] = ZERO + digit, operator
        values[:, ::2] = running_values(digit, operator, self.modulus)
        return tokens, values


def running_values(digit: IntArray, operator: IntArray, modulus: int) -> IntArray:
    """Return the value of d_0 o_1 d_1 ... o_t d_t for every t, products before sums, [B, digits]."""
    term, total = digit[:, 0], np.zeros_like(digit[:, 0])  # the current product, and the sum of the earlier terms
    values = [term]
    for d, o in zip(digit.T[1:], operator.T, strict=False):  # a last operator may be replaced by "="
        multiplies = o == TIMES
        total = np.where(multiplies, total, total + term)
        term = np.where(multiplies, term * d, np.where(o == PLUS, d, -d)) % modulus
        values.append(total + term)
    return np.stack(values, 1) % modulus
