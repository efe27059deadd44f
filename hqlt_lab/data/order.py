"""The order of training windows: in every epoch another permutation, of which any entry can be computed alone.

    x = (l, r) in Z_a x Z_b,   a b >= n,   a ~ b ~ sqrt(n)
    l <- l + f(r, key_1) mod a,   r <- r + f(l, key_2) mod b,   l <- l + f(r, key_3) mod a,   ...

Each line can be undone, so the whole is a bijection of Z_a x Z_b (a Feistel network).  A result past the end is put in
again until it is not: that leaves a bijection of 0 .. n - 1, and happens seldom, as a b < n + a.  The keys are a hash
of (seed, epoch, round).  A table of n numbers per epoch would be simpler, but 15 billion tokens make 7 million windows
of 2,048 or 234 million of 64, in every process.

Black, Rogaway 2002, "Ciphers with arbitrary finite domains".
"""

from functools import lru_cache
from hashlib import blake2b
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

ROUNDS = 6
HALF = np.uint64(32)
FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64


def shuffled(first: int, number: int, count: int, seed: int) -> Ints:
    """Which of `count` windows come as numbers first .. first + number - 1 of training."""
    found = []
    while number:
        epoch, place = divmod(first, count)
        here = min(number, count - place)
        found.append(of_epoch(np.arange(place, place + here, dtype=np.uint64), count, round_keys(seed, epoch)))
        first, number = first + here, number - here
    return np.concatenate(found).astype(np.int64)


def of_epoch(places: Words, count: int, keys: Words) -> Words:
    """Where each place of an epoch is sent; one that falls past the end goes on until it does not."""
    sent = permuted(places, count, keys)
    while (outside := sent >= count).any():
        sent[outside] = permuted(sent[outside], count, keys)
    return sent


def permuted(places: Words, count: int, keys: Words) -> Words:
    """One pass of the network: a bijection of 0 .. a b - 1."""
    a = isqrt(count - 1) + 1
    rows, columns = np.uint64(a), np.uint64(-(-count // a))
    left, right = np.divmod(places, columns)
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        left = (left + hashed(right, even)) % rows
        right = (right + hashed(left, odd)) % columns
    return left * columns + right


@lru_cache(maxsize=16)
def round_keys(seed: int, epoch: int) -> Words:
    """64 random bits for each round."""
    told = blake2b(f"windows/{seed}/{epoch}".encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(told, dtype="<u8")


def hashed(words: Words, key: np.uint64) -> Words:
    """32 random bits for each word: products carry low bits up, and the high half is what is taken down again."""
    words = (words ^ key) * FACTORS[0]
    return ((words ^ (words >> HALF)) * FACTORS[1]) >> HALF
