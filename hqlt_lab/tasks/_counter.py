"""Random numbers without a state: each is a hash of (stream, example, what is drawn, draw).

    word = mix(row ^ column),   row = mix(mix(example * g) ^ hash(stream, what)),   column = mix(draw * g)

`mix` is the finaliser of splitmix64 and g its odd constant.  Nothing is drawn in turn, so that any slice of any stream
can be made anywhere, in any order, and a number that is added later changes none that were there.

Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
LAST = np.uint64(31)


class Draws:
    """The random numbers of examples first .. first + count - 1 of one stream; one row per example."""

    def __init__(self, stream: str, first: int, count: int) -> None:
        self.stream = stream
        self.examples = np.arange(first, first + count, dtype=np.uint64)

    def words(self, what: str, width: int = 1) -> Words:
        """64 random bits each, [count, width].  A wider draw begins with the narrower one."""
        key = np.frombuffer(blake2b(f"{self.stream}/{what}".encode(), digest_size=8).digest(), dtype="<u8")
        rows = mix(mix(self.examples * GOLDEN) ^ key)
        columns = mix(np.arange(1, width + 1, dtype=np.uint64) * GOLDEN)
        return mix(rows[:, None] ^ columns)

    def integers(self, what: str, low: int | Ints, high: int | Ints, width: int = 1) -> Ints:
        """From low to high, both included, [count, width]; the limits may differ by row."""
        return between(self.words(what, width), low, high)

    def fractions(self, what: str, width: int = 1) -> Floats:
        """Inside (0, 1), [count, width]."""
        return ((self.words(what, width) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def orders(self, what: str, width: int) -> Ints:
        """A permutation of 0 .. width - 1 per row, [count, width]."""
        return self.words(what, width).argsort(1, kind="stable")

    def distinct(self, what: str, low: int | Ints, high: int | Ints, width: int) -> Ints:
        """Integers from low to high that differ within a row, in random order, [count, width]."""
        # Floyd: turn i draws from the first few only, and a number that is taken gives way to the turn's largest
        words, picks = self.words(what, width), np.full((len(self.examples), width), -1)
        for i in range(width):
            largest = high - low - (width - 1 - i)
            pick = between(words[:, i : i + 1], 0, largest)
            taken = (picks == pick).any(1, keepdims=True)
            picks[:, i : i + 1] = np.where(taken, largest, pick)
        return low + np.take_along_axis(picks, self.orders(f"{what} order", width), 1)


def mix(words: Words) -> Words:
    """A bijection of 64-bit words in which every bit that goes in turns about half of those that come out."""
    for shift, factor in ROUNDS:
        words = (words ^ (words >> shift)) * factor
    return words ^ (words >> LAST)


def between(words: Words, low: int | Ints, high: int | Ints) -> Ints:
    """From random words to integers from low to high; uneven by less than (high - low) / 2^32."""
    half, choices = np.uint64(32), np.asarray(high - low + 1).astype(np.uint64)
    return low + ((words >> half) * choices >> half).astype(np.int64)
