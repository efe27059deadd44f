"""Counter-based random numbers without state: each number is a hash of (stream, example, name, draw).

    word = mix(row ^ column),   row = mix(mix(example * g) ^ hash(stream, name)),   column = mix(draw * g)

`mix` is the finalizer of splitmix64 and g its odd constant.  Numbers are not drawn in sequence: any slice of any stream
can be computed anywhere and in any order, and adding a new name does not change existing numbers.

Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.hashing import derive_words

UInt64Array = NDArray[np.uint64]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
LAST_SHIFT = np.uint64(31)


class CounterRng:
    """Random numbers of examples first .. first + count - 1 of a stream, one row per example.

    The names of streams and draws are part of the seed: renaming one changes all of its numbers.
    """

    def __init__(self, stream: str, first: int, count: int) -> None:
        self.stream = stream
        self.example_numbers = np.arange(first, first + count, dtype=np.uint64)

    @classmethod
    def for_examples(cls, stream: str, numbers: IntArray) -> Self:
        """Return the random numbers of the examples with these numbers, in any order."""
        rng = cls(stream, 0, 0)
        rng.example_numbers = numbers.astype(np.uint64)
        return rng

    def random_bits(self, name: str, width: int = 1) -> UInt64Array:
        """Return random 64-bit words [count, width].  A wider draw begins with the narrower one."""
        key = np.frombuffer(derive_words(f"{self.stream}/{name}".encode()), dtype="<u8")
        rows = mix_bits(mix_bits(self.example_numbers * GOLDEN_GAMMA) ^ key)
        columns = mix_bits(np.arange(1, width + 1, dtype=np.uint64) * GOLDEN_GAMMA)
        return mix_bits(rows[:, None] ^ columns)

    def integers(self, name: str, low: int | IntArray, high: int | IntArray, width: int = 1) -> IntArray:
        """Return random integers from low to high, both included, [count, width].  The limits may differ by row."""
        return bits_to_integers(self.random_bits(name, width), low, high)

    def uniform(self, name: str, width: int = 1) -> FloatArray:
        """Return random floats in the open interval (0, 1), [count, width]."""
        return ((self.random_bits(name, width) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def permutations(self, name: str, width: int) -> IntArray:
        """Return a random permutation of 0 .. width - 1 per row, [count, width]."""
        return self.random_bits(name, width).argsort(1, kind="stable")

    def distinct_integers(self, name: str, low: int | IntArray, high: int | IntArray, width: int) -> IntArray:
        """Return integers from low to high that differ within a row, in random order, [count, width]."""
        # Floyd's algorithm: step i draws from 0 .. largest, and takes `largest` itself if the number is already taken
        words, picks = self.random_bits(name, width), np.full((len(self.example_numbers), width), -1)
        for i in range(width):
            largest = high - low - (width - 1 - i)
            pick = bits_to_integers(words[:, i : i + 1], 0, largest)
            taken = (picks == pick).any(1, keepdims=True)
            picks[:, i : i + 1] = np.where(taken, largest, pick)
        return low + np.take_along_axis(picks, self.permutations(f"{name} order", width), 1)


def mix_bits(words: UInt64Array) -> UInt64Array:
    """Mix 64-bit words with a bijection in which every input bit flips about half of the output bits."""
    for shift, factor in MIX_ROUNDS:
        words = (words ^ (words >> shift)) * factor
    return words ^ (words >> LAST_SHIFT)


def bits_to_integers(words: UInt64Array, low: int | IntArray, high: int | IntArray) -> IntArray:
    """Map random words to integers from low to high.  The bias is below (high - low) / 2^32."""
    half, choices = np.uint64(32), np.asarray(high - low + 1).astype(np.uint64)
    return low + ((words >> half) * choices >> half).astype(np.int64)
