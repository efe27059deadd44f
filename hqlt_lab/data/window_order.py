"""The order of training windows: a different permutation per epoch, whose entries can be computed one by one.

    x = (l, r) in Z_a x Z_b,   a b >= n,   a ~ b ~ sqrt(n)
    l <- l + f(r, key_1) mod a,   r <- r + f(l, key_2) mod b,   l <- l + f(r, key_3) mod a,   ...

Each line is invertible, so the composition is a bijection of Z_a x Z_b (a Feistel network).  A result >= n is passed
through the network again until it is below n (cycle walking), which gives a bijection of 0 .. n - 1.  This is rare,
because a b < n + a.  The keys are a hash of (seed, epoch, round).  A table of n numbers per epoch would be simpler,
but 15 billion tokens make 7 million windows of 2,048 tokens or 234 million of 64, and each process would need a copy.

Black, Rogaway 2002, "Ciphers with arbitrary finite domains".
"""

from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.hashing import derive_words

UInt64Array = NDArray[np.uint64]
IntArray = NDArray[np.int64]

FEISTEL_ROUNDS = 6
HALF_BITS = np.uint64(32)
MIX_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # from splitmix64


def shuffle_windows(first: int, num_requested: int, num_windows: int, seed: int) -> IntArray:
    """Return the window numbers at positions first .. first + num_requested - 1 of training, across epochs."""
    shuffled = []
    while num_requested:
        epoch, offset = divmod(first, num_windows)
        count = min(num_requested, num_windows - offset)
        positions = np.arange(offset, offset + count, dtype=np.uint64)
        shuffled.append(permute_epoch(positions, num_windows, round_keys(seed, epoch)))
        first, num_requested = first + count, num_requested - count
    return np.concatenate(shuffled).astype(np.int64)


def permute_epoch(positions: UInt64Array, num_windows: int, keys: UInt64Array) -> UInt64Array:
    """Map positions of an epoch to window numbers, repeating the network for results out of range."""
    windows = feistel_pass(positions, num_windows, keys)
    while (outside := windows >= num_windows).any():
        windows[outside] = feistel_pass(windows[outside], num_windows, keys)
    return windows


def feistel_pass(positions: UInt64Array, num_windows: int, keys: UInt64Array) -> UInt64Array:
    """Apply the Feistel network once: a bijection of 0 .. a b - 1."""
    a = isqrt(num_windows - 1) + 1
    rows, columns = np.uint64(a), np.uint64(-(-num_windows // a))
    left, right = np.divmod(positions, columns)
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        left = (left + hash_words(right, even)) % rows
        right = (right + hash_words(left, odd)) % columns
    return left * columns + right


@lru_cache(maxsize=16)
def round_keys(seed: int, epoch: int) -> UInt64Array:
    """Return a 64-bit key for each round."""
    return np.frombuffer(derive_words(f"windows/{seed}/{epoch}".encode(), FEISTEL_ROUNDS), dtype="<u8")


def hash_words(words: UInt64Array, key: np.uint64) -> UInt64Array:
    """Hash each word to 32 bits: multiplication carries low bits upwards, the shift keeps the high half."""
    words = (words ^ key) * MIX_FACTORS[0]
    return ((words ^ (words >> HALF_BITS)) * MIX_FACTORS[1]) >> HALF_BITS
