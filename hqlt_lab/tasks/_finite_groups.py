"""Finite groups as tables: symmetric, alternating and cyclic groups, and their direct products.

    S4        permutations of 4 things               elements in the lexicographic order of their images
    A5        even permutations of 5 things
    Z60       integers modulo 60
    A4xZ5     pairs of elements; the last factor varies fastest

Element 0 is the identity.  The product g o h of permutations applies h first: (g o h)(x) = g(h(x)).
"""

import re
from functools import lru_cache
from itertools import permutations
from math import factorial, prod
from typing import NamedTuple

import numpy as np

from hqlt_lab.tasks._counter_rng import IntArray

FACTOR = re.compile(r"([SAZ])([1-9][0-9]*)")
MAX_ORDER = 1000


class Group(NamedTuple):
    """The elements of a group, and their products."""

    names: tuple[str, ...]
    products: IntArray  # [n, n] index of g o h
    num_moved: IntArray | None  # [n] how many things a permutation moves; None: not a group of permutations


def find_group_mistake(name: str) -> str:
    """Return what is wrong with the name of a group, or ""."""
    factors = [FACTOR.fullmatch(factor) for factor in name.split("x")]
    if not all(factors):
        return f"{name!r} is not the name of a group."
    order = prod(count_elements(match[1], int(match[2])) for match in factors if match)
    return "" if 2 <= order <= MAX_ORDER else f"{name} has {order:,} elements; 2 to {MAX_ORDER:,} are allowed."


def count_elements(kind: str, size: int) -> int:
    """Return the number of elements of S, A or Z of this size."""
    if kind == "Z":
        return size
    size = min(size, MAX_ORDER)  # larger factorials take long to format
    return factorial(size) if kind == "S" else max(factorial(size) // 2, 1)


@lru_cache(16)
def make_group(name: str) -> Group:
    """Return a group from its name."""
    group, *others = (make_factor(*FACTOR.fullmatch(factor).groups()) for factor in name.split("x"))  # type: ignore[union-attr]
    for other in others:
        group = multiply_groups(group, other)
    return group


def make_factor(kind: str, size: str) -> Group:
    """Return a symmetric, alternating or cyclic group."""
    count = int(size)
    if kind == "Z":
        numbers = np.arange(count)
        return Group(tuple(map(str, range(count))), (numbers[:, None] + numbers) % count, None)
    images = np.array(list(permutations(range(count))))  # [n, count]
    if kind == "A":
        images = images[count_inversions(images) % 2 == 0]
    composed = images[:, images]  # [n, n, count]: images of g o h
    weights = count ** np.arange(count)[::-1]  # so that the order of the codes is lexicographic
    products = np.searchsorted(images @ weights, composed @ weights)
    names = tuple("".join(map(str, image)) for image in images.tolist())
    return Group(names, products, (images != np.arange(count)).sum(1))


def count_inversions(images: IntArray) -> IntArray:
    """Return the number of inversions of each permutation, for images [n, count]."""
    later = np.triu(np.ones((images.shape[1], images.shape[1]), dtype=bool), 1)
    return ((images[:, :, None] > images[:, None, :]) & later).sum((1, 2))


def multiply_groups(group: Group, other: Group) -> Group:
    """Return the direct product of two groups."""
    first, second = np.divmod(np.arange(len(group.names) * len(other.names)), len(other.names))
    products = group.products[first[:, None], first] * len(other.names) + other.products[second[:, None], second]
    return Group(tuple(f"{a}x{b}" for a in group.names for b in other.names), products, None)
