"""The value of one setting that makes a model as large as another.

mlp_width   size(m) = size(n) + slope (m - n): one count and the slope tell where it is as wanted
width       the size grows with it: halving finds the nearest, in steps that keep the channels of a head even for rope
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

STEPS = (16, 8, 4, 2, 1)  # multiples of 16 compute fast; finer ones only where a model is so small that 16 would miss


class Found(NamedTuple):
    """A value, and how large it makes the model."""

    value: int
    size: float


def on_a_line(written: Found, slope: float, wanted: float, within: float) -> Found:
    """The first multiple of 16, 8, ... that is near enough, else the nearest."""
    exact = written.value + (wanted - written.size) / slope

    def nearest(step: int) -> Found:
        value = max(step, round(exact / step) * step)
        return Found(value, written.size + slope * (value - written.value))

    coarse, *fine = (nearest(step) for step in STEPS)
    choices = [nearer(wanted, written, coarse), *fine]
    return next((one for one in choices if abs(one.size - wanted) <= within * wanted), choices[-1])


def by_halving(size: Callable[[int], float], written: Found, wanted: float, step: int) -> Found | None:
    """The multiple of `step` that comes nearest; None: the size does not depend on it."""
    most = max(1, written.value // step)
    while size(most * step) < wanted:
        if size(2 * most * step) == size(most * step):
            return None
        most *= 2
    units = range(1, most + 1)
    place = bisect_left(units, wanted, key=lambda unit: size(unit * step))
    around = (Found(unit * step, size(unit * step)) for unit in units[max(0, place - 1) : place + 1])
    return nearer(wanted, written, *around)


def nearer(wanted: float, *several: Found) -> Found:
    """The one that misses least; of equals the first."""
    return min(several, key=lambda one: abs(one.size - wanted))
