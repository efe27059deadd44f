"""The contract of an update rule.

A rule turns the token stream into gates, once, when a token arrives, and scans (q, k, v, gates) through its memory.

- Linear in the state (almost all are): subclass `LinearRule` and give `gates`.  Chunk-parallel training, streaming,
  delay, hold and micro-steps come with it.
- Not linear: subclass `StepRule` and give `gates` and `step`.  Everything else comes with it, one step at a time.
- With a parallel form of its own: override `scan`; the kit compares it with `reference`.  Where its products are not
  those of the base class, `flops` is overridden with it.

What a rule owns it must read: a parameter without a gradient fails the kit.  Values that are not drawn from N(0, std^2)
are set in `reset_parameters`, which runs after the house's own initialisation, so they survive it.
"""

from typing import Any

from torch import Tensor, nn

from hqlt_lab.ops.backends import SCANS
from hqlt_lab.ops.choosing import Choice, Job, choose
from hqlt_lab.ops.chunked import CHUNK
from hqlt_lab.ops.flops import Flops, counted, of_products, scan_backward_flops, scan_flops
from hqlt_lab.ops.linear import obstacle, scan
from hqlt_lab.ops.pieces import Cuts
from hqlt_lab.ops.recurrent import recall, recurrent
from hqlt_lab.ops.steps import Course, each, linear_step


class UpdateRule(nn.Module):
    """What the layer asks of a rule."""

    feature_map: str = "silu_l2"
    """The feature map it is used with unless the experiment says otherwise."""
    needs_unit_keys: bool = False
    """Whether keys that are not unit vectors make it diverge."""
    needs_positive_features: bool = False
    """Whether a negative feature breaks it (a normaliser that may vanish)."""
    writes: int = 1
    """Pairs it writes per token; the layer projects as many keys and values."""
    backend: str = "auto"
    """What is to compute a linear scan, see `ops.backends`; the model sets it."""

    def gates(self, x: Tensor) -> Any:
        """A named tuple of [B, H, T * writes] tensors (or None) from the token stream x [B, T, width]."""
        raise NotImplementedError(f"{type(self).__name__} gives no gates.")

    def misfit(self, gates: Any, rows: int, heads: int, tokens: int) -> str:
        """What keeps these from being gates, as a sentence; empty if nothing does."""
        if not hasattr(gates, "_fields"):
            return (
                f"gates() returns a {type(gates).__name__}, and a named tuple of gates is needed: "
                "Gates(log_keep=..., erase=..., write=...), from hqlt_lab.ops.steps."
            )
        for name, gate in zip(gates._fields, gates, strict=True):
            if gate is not None and not isinstance(gate, Tensor):
                return f"{name} is a {type(gate).__name__}, and a tensor [B, H, T * writes] is needed, or None."
            if gate is not None and gate.shape[:3] != (rows, heads, tokens * self.writes):
                sizes = f"{rows} rows, {heads} heads, {tokens} tokens of {self.writes} writes"
                return f"{name} is {list(gate.shape)} for {sizes}, and [B, H, T * writes] is needed."
            if gate is not None and gate.isnan().any():
                return f"{name} is no number (nan) for some tokens."
        return ""

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        """Reads [B, H, T, V] and the state after the last token.  `course`: see `ops.steps`."""
        raise NotImplementedError(f"{type(self).__name__} does not scan.")

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        """The slow truth that `scan` must equal."""
        return recurrent(q, k, v, gates, state, course, step=self.step, read=self.read)

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Any) -> Tensor:
        """The memory after one write.  state [B, H, K, V], k [B, H, K], v [B, H, V], gates [B, H]."""
        raise NotImplementedError(f"{type(self).__name__} does not step.")

    def value_channels(self, values: int) -> int:
        """Numbers its memory holds per feature, for values of that size; the state's declared bytes follow from it."""
        return values

    def read(self, state: Tensor, q: Tensor) -> Tensor:
        """What the memory answers: [B, H, V] for q [B, H, K]."""
        return recall(state, q)

    def computed_by(self, gates: Any, job: Job) -> Choice:
        """What computes `scan` on such a job, to be told of a run."""
        return Choice("its own scan", "the rule brings it")

    def flops(self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course) -> Flops:
        """Of `scan` on such tensors; their numbers do not matter."""
        return of_products(counted(lambda: self.scan(q, k, v, gates, state, course)))


class LinearRule(UpdateRule):
    """Keep, erase, write: `gates` returns `ops.steps.Gates`, and the rule is complete."""

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Any) -> Tensor:
        return linear_step(state, k, v, gates)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        return scan(q, k, v, gates, state, course, backend=self.backend)

    def computed_by(self, gates: Any, job: Job) -> Choice:
        return choose(SCANS, self.backend, job._replace(obstacle=obstacle(gates)))

    def flops(self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course) -> Flops:
        rows, heads, tokens, key = q.shape
        if tokens == 1:  # is scanned by steps
            return super().flops(q, k, v, gates, state, course)
        cuts = Cuts(tokens, k.shape[2] // tokens, course.hold, CHUNK)
        sizes = (cuts, rows * heads, key, v.shape[3], gates.erase is not None, state is None)
        return Flops(scan_flops(*sizes), scan_backward_flops(*sizes, last=False))


class StepRule(UpdateRule):
    """Any memory that has a step: gives `step`, and is scanned by it."""

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        return self.reference(q, k, v, gates, state, course)

    def computed_by(self, gates: Any, job: Job) -> Choice:
        return Choice("recurrent", "the rule is not linear in its state")

    def flops(self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course) -> Flops:
        tokens, writes = q.shape[2], k.shape[2] // q.shape[2]  # every token costs what the first does
        one = (q[:, :, :1], k[:, :, :writes], v[:, :, :writes], each(lambda gate: gate[:, :, :writes], gates))
        return of_products(tokens * super().flops(*one, state, course).forward)
