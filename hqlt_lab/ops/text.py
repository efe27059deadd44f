"""A text as the scan sees it: the rows of all heads, in groups that fit a processor's cache, cut into chunks."""

from collections.abc import Iterator
from functools import cached_property

from torch import Tensor

from hqlt_lab.ops.chunk import Chunk
from hqlt_lab.ops.fading import Fading, Vectors, fading, vectors, visible
from hqlt_lab.ops.pieces import Cuts
from hqlt_lab.ops.steps import Maybe

CACHED = 2**19  # numbers of a matrix that is worked on, rows times writes times channels: 2 MB


class Text:
    """All that goes through the memory: B * H = R rows of T tokens."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[Maybe, Maybe, Maybe],
        starts: Tensor | None,
        one: bool,
        cuts: Cuts,
    ) -> None:
        """From [B, H, ..] and starts [B, T]; `one`: what erases also writes."""
        self.q, self.k, self.v = (x.flatten(0, 1) for x in (q, k, v))
        self.log_keep, self.erase, self.write = (None if gate is None else gate.flatten(0, 1) for gate in gates)
        self.starts = None if starts is None else starts.repeat_interleave(q.shape[1], 0)
        self.one, self.cuts = one, cuts

    def groups(self) -> "Iterator[Rows]":
        """Rows that are in the cache together; on other devices than a CPU, all of them."""
        rows, channels = len(self.q), max(self.k.shape[2], self.v.shape[2])
        step = rows if self.q.device.type != "cpu" else max(CACHED // (self.cuts.extent[1] * channels), 2)
        return (Rows(self, slice(start, min(start + step, rows))) for start in range(0, rows, step))

    @cached_property
    def vectors(self) -> Vectors | None:
        return vectors(self.log_keep, self.starts, self.cuts, self.k.dtype)

    @cached_property
    def seen(self) -> list[Tensor | None]:
        """The writes of its chunk that each token sees, chunk by chunk."""
        seen = self.cuts.seen()
        return self.cuts.split(None if seen is None else seen[None].to(self.q.device))


class Rows:
    """Some rows of a text, chunk by chunk."""

    def __init__(self, text: Text, rows: slice) -> None:
        self.text, self.rows, self.cuts = text, rows, text.cuts
        self.q = self.split(text.q, 1)
        self.k, self.v = self.split(text.k), self.split(text.v)
        self.erase, self.write = (self.split(None if x is None else x[..., None]) for x in (text.erase, text.write))
        self.vectors = None if text.vectors is None else text.vectors.chunks(rows, text.cuts)

    def split(self, x: Tensor | None, per_token: int | None = None) -> list[Tensor | None]:
        """The chunks of these rows of [R, T * writes, ..], or of [R, T, ..]."""
        return self.cuts.split(None if x is None else x[self.rows], per_token or self.cuts.writes)

    def chunk(self, number: int) -> Chunk:
        q, k, v, erase = self.q[number], self.k[number], self.v[number], self.erase[number]
        assert q is not None and k is not None and v is not None
        inside = self.cuts.pieces[number].inside
        write = erase if self.text.one else self.write[number]
        return Chunk(q, k, v, erase, write, self.fading(number, k, inside), inside)

    def fading(self, number: int, k: Tensor, inside: bool) -> Fading:
        seen = self.seen(number)
        if self.vectors is None:
            return Fading(reads=None if seen is None else visible(seen, k.shape[1]).to(k.dtype)[None])
        made = fading(self.vectors[number], seen, k.dtype)
        return made if inside else made._replace(to_read=self.going_on(number))

    def seen(self, number: int) -> Tensor | None:
        seen = self.text.seen[number]
        return None if seen is None else seen[0]

    def going_on(self, number: int) -> Tensor | None:
        """0 where a document begins with the stretch that this chunk is a piece of: the state is not its own."""
        if self.text.starts is None:
            return None
        first = self.cuts.pieces[self.cuts.pieces[number].opened_by].start
        return (~self.text.starts[self.rows, first]).to(self.text.q.dtype)[:, None, None]
