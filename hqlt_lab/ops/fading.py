"""What is left of what inside a chunk: keeps, documents and holds, as factors on products.

With g_i the sum of the chunk's log-keeps up to write i, and then_i that sum after the writes that token i sees,

    among[i, j]  = e^{g_i - g_j}       of write j, when write i looks it up              for j <= i; else any number
    reads[i, j]  = e^{then_i - g_j}    of write j, when token i reads                    for j < seen_i
    to_write[i]  = e^{g_i}             of the state before the chunk, when write i looks
    to_read[i]   = e^{then_i}          of the state before the chunk, when token i reads
    leaving[j]   = e^{g_L - g_j}       of write j, when the chunk ends
    keep         = e^{g_L}             of the state before the chunk, when it ends

and 0 across the border of two documents.  None stands for ones.

Log-keeps add up in float64; matrices are made of two float32 parts of the sums where that is the precision, so that
their differences are right without float64 matrices, and no keep is too small.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.pieces import Cuts
from hqlt_lab.ops.running_sum import running_sum

LEAST = -1e4  # a keep of exactly 0 would be -inf, and the difference of two of them no number


class Fading(NamedTuple):
    """Of one chunk with C tokens and L writes, for R rows."""

    among: Tensor | None = None  # [R, L, L]
    reads: Tensor | None = None  # [R or 1, C, L]
    to_write: Tensor | None = None  # [R, L, 1]
    to_read: Tensor | None = None  # [R, C, 1]
    leaving: Tensor | None = None  # [R, L, 1]
    keep: Tensor | None = None  # [R, 1, 1]


class Vectors(NamedTuple):
    """What the factors of all chunks are made of: by write [R, T * writes] or by token [R, T]."""

    fade: list[Tensor] | None = None  # g, in parts that add up to it
    then: list[Tensor] | None = None
    of_write: Tensor | None = None  # the document's number, 0 for the one that goes on from before the chunk
    of_token: Tensor | None = None
    to_write: Tensor | None = None
    to_read: Tensor | None = None
    leaving: Tensor | None = None
    keep: Tensor | None = None  # by write, the same for all of a chunk

    def chunks(self, rows: slice, cuts: Cuts) -> "list[Vectors]":
        """Those of these rows, chunk by chunk."""
        by = [cuts.writes, 1, cuts.writes, 1, cuts.writes, 1, cuts.writes, cuts.writes]
        fields: list[Any] = []
        for field, per_token in zip(self, by, strict=True):
            if isinstance(field, list):
                fields.append(zip(*(cuts.split(part[rows], per_token) for part in field), strict=True))
            else:
                fields.append(cuts.split(None if field is None else field[rows], per_token))
        return [Vectors(*chunk) for chunk in zip(*fields, strict=True)]


def vectors(log_keep: Tensor | None, starts: Tensor | None, cuts: Cuts, dtype: torch.dtype) -> Vectors | None:
    """log_keep [R, T * writes], starts [R, T]; None where nothing fades and no document begins."""
    if log_keep is None and starts is None:
        return None
    made = Vectors()
    if log_keep is not None:
        made = with_keeps(log_keep, cuts, dtype)
    return made if starts is None else with_documents(made, starts, cuts, dtype)


def with_keeps(log_keep: Tensor, cuts: Cuts, dtype: torch.dtype) -> Vectors:
    total = F.pad(running_sum(log_keep.double().clamp(min=LEAST), 1), (1, 0))  # [R, 1 + T * writes]
    first, last = cuts.first_token() * cuts.writes, (cuts.last_token() + 1) * cuts.writes
    base = total[:, first]  # [R, T]
    by_write = base.repeat_interleave(cuts.writes, 1)
    fade = total[:, 1:] - by_write
    seen = cuts.seen()
    then = fade if seen is None else total[:, first + seen] - base
    whole = (total[:, last] - base).repeat_interleave(cuts.writes, 1)
    to_write, to_read, leaving, keep = (g.exp().to(dtype) for g in (fade, then, whole - fade, whole))
    return Vectors(parts(fade, dtype), parts(then, dtype), None, None, to_write, to_read, leaving, keep)


def with_documents(made: Vectors, starts: Tensor, cuts: Cuts, dtype: torch.dtype) -> Vectors:
    total = F.pad(starts.long().cumsum(1), (1, 0))
    first = total[:, cuts.first_token()]
    of_token, last = total[:, 1:] - first, total[:, cuts.last_token() + 1] - first
    of_write, last = (x.repeat_interleave(cuts.writes, 1) for x in (of_token, last))
    return made._replace(
        of_write=of_write,
        of_token=of_token,
        to_write=where(of_write == 0, made.to_write, dtype),
        to_read=where(of_token == 0, made.to_read, dtype),
        leaving=where(of_write == last, made.leaving, dtype),
        keep=where(last == 0, made.keep, dtype),
    )


def fading(found: Vectors, seen: Tensor | None, dtype: torch.dtype) -> Fading:
    """The factors of one chunk.  `seen` [C]."""
    among = left(found.fade, found.fade, same(found.of_write, found.of_write), dtype)
    reads = among
    if seen is not None and found.leaving is not None:
        shown = visible(seen, found.leaving.shape[1])
        borders = same(found.of_token, found.of_write)
        reads = left(found.then, found.fade, shown if borders is None else shown & borders, dtype)
    to_write, to_read, leaving, keep = (None if x is None else x[..., None] for x in found[4:])
    return Fading(among, reads, to_write, to_read, leaving, None if keep is None else keep[:, :1])


def visible(seen: Tensor, length: int) -> Tensor:
    """[C, L]: the writes that each token sees."""
    return torch.arange(length, device=seen.device) < seen[:, None]


def same(looks: Tensor | None, written: Tensor | None) -> Tensor | None:
    """Whether they are of one document."""
    return None if looks is None or written is None else looks[:, :, None] == written[:, None, :]


def left(then: list[Tensor] | None, fade: list[Tensor] | None, shown: Tensor | None, dtype: torch.dtype) -> Tensor:
    """e^{then_i - fade_j} where j is shown, else 0.  [R, n, L]."""
    if then is None or fade is None:
        assert shown is not None
        return shown.to(dtype)
    apart = then[0][:, :, None] - fade[0][:, None, :]
    for one, other in zip(then[1:], fade[1:], strict=True):
        apart.add_(one[:, :, None]).sub_(other[:, None, :])
    made = apart.clamp_(max=0.0).exp_()  # what comes later would have grown
    return made if shown is None else made.mul_(shown)


def parts(number: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """A float64 as numbers of that dtype that add up to it."""
    first = number.to(dtype)
    return [first] if dtype == number.dtype else [first, (number - first).to(dtype)]


def where(going_on: Tensor, factor: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The factor, or 1, where the document goes on; else 0."""
    return going_on.to(dtype) if factor is None else factor * going_on


def to_log_keeps(by_write: Tensor, by_token: Tensor | None, by_end: Tensor | None, seen: Tensor | None) -> Tensor:
    """Gradients by g [R, L], by then [R, C] and by g_L [R] become one by the log-keeps."""
    if by_token is not None and seen is None:
        by_write += by_token
    elif by_token is not None and seen is not None:
        some = seen > 0
        by_write.index_add_(1, seen[some] - 1, by_token[:, some])
    if by_end is not None:
        by_write[:, -1] += by_end
    return running_sum(by_write.flip(1), 1).flip(1)
