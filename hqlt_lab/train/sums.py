"""What a fixed set adds up to: its metrics, and how far another set of examples would have moved them.

Each example i is a row x_i of counts: right answers, scored tokens, loss.  A metric is a function f of their sum T, and
moves with one example by g . x_i, with g the gradient of f at T.  So over examples drawn anew (the delta method, the
examples being the clusters) its standard error is

    error^2 = N / (N - 1) * sum_i (g . x_i - g . T / N)^2 = N / (N - 1) * (g P g - (g . T)^2 / N),   P = sum_i x_i x_i^T

which for a ratio R = right / scored is N / (N - 1) * sum_i (right_i - R scored_i)^2 / scored^2.  T and P are sums,
whoever computes which part of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hqlt_lab.train.ranks import summed

STEP = 1e-4  # of what one count is worth: the differences are then good to eight digits or more
Metrics = dict[str, float]
Counts = Mapping[str, float]


@dataclass(frozen=True)
class Sums:
    """Over the examples of a set."""

    names: tuple[str, ...]  # of the counts
    examples: int  # N
    totals: Tensor  # T [K], float64
    products: Tensor  # P [K, K]

    def metrics(self, told: Callable[[Counts], Metrics]) -> Metrics:
        """`told` makes metrics of summed counts."""
        return told(dict(zip(self.names, self.totals.tolist(), strict=True)))

    def errors(self, told: Callable[[Counts], Metrics]) -> Metrics:
        """The standard error of each metric; none where there is but one example."""
        if self.examples < 2:
            return {}
        return {name: self.error(gradient) for name, gradient in self.gradients(told).items()}

    def error(self, gradient: Tensor) -> float:
        """Of the metric that changes so with the totals."""
        together = gradient @ self.products @ gradient - (gradient @ self.totals) ** 2 / self.examples
        return math.sqrt(max(0.0, float(together)) * self.examples / (self.examples - 1))

    def gradients(self, told: Callable[[Counts], Metrics]) -> dict[str, Tensor]:
        """Of every metric [K], by differences, so that a task may compute its metrics in any way."""
        here = self.metrics(told)
        found = {name: torch.zeros_like(self.totals) for name in here}
        for place, size in enumerate(self.products.diagonal().sqrt().tolist()):
            if size == 0:  # no example has it, so it moves nothing
                continue
            up, down = (told(self.moved(place, way * STEP * size)) for way in (1, -1))
            for name in here:
                found[name][place] = (up[name] - down[name]) / (2 * STEP * size)
        return found

    def moved(self, place: int, way: float) -> Counts:
        """The totals, with one of them a little larger or smaller."""
        counts = self.totals.clone()
        counts[place] += way
        return dict(zip(self.names, counts.tolist(), strict=True))


def over_processes(names: tuple[str, ...], examples: int, totals: Tensor, products: Tensor) -> Sums:
    """What all processes have summed; all of them must ask."""
    count = totals.new_tensor([float(examples)])
    number, totals, products = (
        summed(torch.cat([count, totals, products.flatten()])).cpu().split((1, len(names), len(names) ** 2))
    )
    return Sums(names, round(float(number)), totals, products.unflatten(0, (len(names), len(names))))
