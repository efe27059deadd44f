"""The order of training windows: in every epoch another permutation, of which any entry can be computed alone.

    x = (l, r) in Z_a x Z_b,   a b >= n,   a ~ b ~ sqrt(n)
    l <- l + f(r, key_1) mod a,   r <- r + f(l, key_2) mod b,   l <- l + f(r, key_3) mod a,   ...

Each line can be undone, so the whole is a bijection of Z_a x Z_b (a Feistel network).  A result past the end is put in
again until it is not: that leaves a bijection of 0 .. n - 1, and happens seldom, as a b < n + a.  The keys are a hash
of (seed, epoch, round).  A table of n numbers per epoch would be simpler, but 15 billion tokens make 7 million windows
of 2,048 or 234 million of 64, in every process.

Black, Rogaway 2002, "Ciphers with arbitrary finite domains".
"""

from hashlib import blake2b
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

ROUNDS = 6
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def shuffled(numbers: Ints, count: int, seed: int) -> Ints:
    """Which of `count` windows comes as number i of training, for each i in `numbers`."""
    epochs, places = np.divmod(numbers.astype(np.uint64), np.uint64(count))
    keys = round_keys(seed, epochs)
    found = permuted(places, count, keys)
    while (outside := found >= count).any():
        found[outside] = permuted(found[outside], count, keys[:, outside])
    return found.astype(np.int64)


def permuted(places: Words, count: int, keys: Words) -> Words:
    """One pass of the network: a bijection of 0 .. a b - 1."""
    rows = np.uint64(isqrt(count - 1) + 1)
    columns = np.uint64(-(-count // int(rows)))
    left, right = np.divmod(places, columns)
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        left = (left + mix(right ^ even) % rows) % rows
        right = (right + mix(left ^ odd) % columns) % columns
    return left * columns + right


def round_keys(seed: int, epochs: Words) -> Words:
    """64 random bits for each round of each epoch, [rounds, epochs]."""
    base = np.frombuffer(blake2b(f"windows/{seed}".encode(), digest_size=8).digest(), dtype="<u8")
    rounds = np.arange(1, ROUNDS + 1, dtype=np.uint64)[:, None] * GOLDEN
    return mix(mix(base ^ mix(epochs + GOLDEN)) + rounds)


def mix(words: Words) -> Words:
    """The finaliser of splitmix64: every bit that goes in turns about half of those that come out."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
