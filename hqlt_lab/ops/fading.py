"""What is left of what inside one chunk: keeps, documents and holds, as factors on products.

With g_i the sum of the log-keeps up to write i, and then_i that sum after the writes that token i sees,

    among[i, j]  = e^{g_i - g_j}       of write j, when write i looks it up              j <= i
    reads[i, j]  = e^{then_i - g_j}    of write j, when token i reads                    j < before_i
    to_write[i]  = e^{g_i}             of the state before the chunk, when write i looks
    to_read[i]   = e^{then_i}          of the state before the chunk, when token i reads
    leaving[j]   = e^{g_L - g_j}       of write j, when the chunk ends
    keep         = e^{g_L}             of the state before the chunk, when it ends

and 0 across the border of two documents.  None stands for ones, or for a triangle of ones.

Log-keeps add up in float64, in two float32 parts where that is the precision: the difference of two sums is then right
without float64 matrices.  It is masked before exp, so that no keep is too small.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = -1e4  # a keep of exactly 0 would be -inf, and the difference of two of them no number


class Fading(NamedTuple):
    """Of one chunk with C tokens and L writes, for R rows."""

    among: Tensor | None = None  # [R, L, L]
    reads: Tensor | None = None  # [R or 1, C, L]
    to_write: Tensor | None = None  # [R, L, 1]
    to_read: Tensor | None = None  # [R, C, 1]
    leaving: Tensor | None = None  # [R, L, 1]
    keep: Tensor | None = None  # [R, 1, 1]
    fades: bool = False  # whether there are keeps, or documents alone


def fading(
    log_keep: Tensor | None, document: Tensor | None, before: Tensor | None, like: Tensor, tokens: int
) -> Fading:
    """log_keep [R, L]; document [R, C], 0 for the one that goes on; before [C], None: every token its own write."""
    length, dtype = like.shape[1], like.dtype
    if log_keep is None and document is None:
        return Fading() if before is None else Fading(reads=visible(before, length).to(dtype)[None])
    seen = visible(torch.arange(1, tokens + 1, device=like.device) if before is None else before, length)
    fade = None if log_keep is None else log_keep.double().clamp(min=LEAST).cumsum(-1)
    then = fade if fade is None or before is None else F.pad(fade, (1, 0))[:, before]
    of_write = None if document is None else document.repeat_interleave(length // tokens, 1)
    reads = left(then, fade, bordered(seen, document, of_write), dtype)
    among = reads
    if before is not None:
        triangle = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
        among = left(fade, fade, bordered(triangle, of_write, of_write), dtype)
    end = None if fade is None else fade[:, -1:]
    last = None if of_write is None else of_write[:, -1:]
    return Fading(
        among,
        reads,
        factor(fade, None if of_write is None else of_write == 0, dtype),
        factor(then, None if document is None else document == 0, dtype),
        factor(None if fade is None or end is None else end - fade, None if last is None else of_write == last, dtype),
        factor(end, None if last is None else last == 0, dtype),
        fade is not None,
    )


def visible(before: Tensor, length: int) -> Tensor:
    """[C, L]: the writes that each token sees."""
    return torch.arange(length, device=before.device) < before[:, None]


def bordered(seen: Tensor, looks: Tensor | None, written: Tensor | None) -> Tensor:
    """What is seen, and of the same document."""
    return seen if looks is None or written is None else seen & (looks[:, :, None] == written[:, None, :])


def left(then: Tensor | None, fade: Tensor | None, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """e^{then_i - fade_j} where it is seen, else 0."""
    if then is None or fade is None:
        return seen.to(dtype)
    apart = 0.0
    for one, other in zip(parts(then, dtype), parts(fade, dtype), strict=True):
        apart = (one[:, :, None] - other[:, None, :]) + apart
    return apart.masked_fill_(~seen, -torch.inf).exp_()  # type: ignore[attr-defined]


def parts(number: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """A float64 as numbers of that dtype that add up to it."""
    first = number.to(dtype)
    return [first] if dtype == number.dtype else [first, (number - first).to(dtype)]


def factor(exponent: Tensor | None, going_on: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """e^exponent where the document goes on, else 0.  [R, n, 1]."""
    if exponent is None:
        return None if going_on is None else going_on.to(dtype)[..., None]
    made = exponent.exp().to(dtype)
    return (made if going_on is None else made * going_on)[..., None]


def to_log_keeps(by_write: Tensor, by_token: Tensor, by_end: Tensor, before: Tensor | None) -> Tensor:
    """Gradients by g [R, L], by then [R, C] and by g_L [R] become one by the log-keeps."""
    if before is None:
        by_write += by_token
    else:
        some = before > 0
        by_write.index_add_(1, before[some] - 1, by_token[:, some])
    by_write[:, -1] += by_end
    return by_write.flip(1).cumsum(1).flip(1)
