"""The fast way to a linear memory: parallel inside a chunk, recurrent between chunks.

Within a chunk that starts from S_0, with g_i the sum of the log-keeps up to step i, every state is a sum of outer
products

    S_i = e^{g_i} S_0 + sum_{j<=i} e^{g_i - g_j} k_j u_j^T                (transposed, as stored)
    u_i = omega_i v_i - epsilon_i (e^{g_i} k_i^T S_0 + sum_{j<i} e^{g_i - g_j} (k_i . k_j) u_j)

so the new values u solve one triangular system, linear in S_0:

    (I + L) u = omega v - (epsilon e^g k) S_0        L_ij = epsilon_i e^{g_i - g_j} k_i . k_j   for j < i
    u = U - W S_0

U, W and the reads are batched over all chunks; only S_{n+1} = e^{g} S_n + (e^{g - g_j} k_j)^T (U_n - W_n S_n) is a
loop.

A token reads S_i after the writes of its chunk that it may see: its own included, or with `hold` those before its
stretch.

The system is solved by substitution: its inverse by doubling powers of L overflows for repeated keys with epsilon =
2, which is parity itself.  Log-keeps add up in float64 and differences are masked before exp, so that no keep is too
small.

Yang et al. 2024, arXiv:2406.06484 (delta rule); arXiv:2412.06464 (with keeps).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.steps import PLAIN, Course, Gates, each, no_autocast, precise

CHUNK = 64  # writes that are solved together


class Grid(NamedTuple):
    """Where the chunks lie: `stretches` stretches of tokens, each cut into `pieces` chunks of `size` tokens.

    A stretch is the whole input, cut so that no stretch of `hold` tokens lies in two chunks; where these are longer
    than a chunk, each of them is one.  The last tokens of a stretch may be holes: zero keys and zero log-keeps change
    nothing.
    """

    stretches: int
    stretch: int
    pieces: int
    size: int

    @classmethod
    def over(cls, tokens: int, hold: int | None, writes: int, chunk: int) -> "Grid":
        room = max(chunk // writes, 1)  # tokens in a chunk, at most
        if hold is not None and hold > room:
            stretch = min(hold, tokens)
            pieces = -(-stretch // room)
            return cls(-(-tokens // stretch), stretch, pieces, -(-stretch // pieces))
        step = hold or 1
        pieces = -(-tokens // (room // step * step))
        size = -(-tokens // (pieces * step)) * step  # as even as can be
        return cls(1, tokens, -(-tokens // size), size)

    def lay(self, x: Tensor, per_token: int) -> Tensor:
        """[B, H, T * per_token, ...] -> [B, H, chunks, size * per_token, ...], zeros in the holes."""
        x = _fill(x, self.stretches * self.stretch * per_token)
        x = _fill(x.unflatten(2, (self.stretches, -1)).flatten(1, 2), self.pieces * self.size * per_token)
        return x.unflatten(1, (-1, self.stretches)).unflatten(3, (self.pieces, -1)).flatten(2, 3)

    def lift(self, x: Tensor, tokens: int) -> Tensor:
        """The way back for reads: [B, H, chunks, size, V] -> [B, H, T, V]."""
        x = x.flatten(2, 3).unflatten(2, (self.stretches, -1))
        return x[:, :, :, : self.stretch].flatten(2, 3)[:, :, :tokens]


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    course: Course = PLAIN,
    *,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """What `recurrent` does with `linear_step`, values and gradients; the arguments are the same."""
    hold, real, starts = course
    with no_autocast(q):
        tokens, writes, dtype = q.shape[2], k.shape[2] // q.shape[2], q.dtype
        grid = Grid.over(tokens, hold, writes, chunk)
        k, gates = neutral_where_unreal(precise(k), each(precise, gates), real, writes)
        q, k, v = grid.lay(precise(q), 1), grid.lay(k, writes), grid.lay(precise(v), writes)
        gates = each(lambda gate: grid.lay(gate, writes), gates)
        # a keep of exactly 0 would be -inf, and the difference of two of them no number
        fade = None if gates.log_keep is None else gates.log_keep.double().clamp(min=-1e4).cumsum(-1)  # [B, H, N, L]
        document = None if starts is None else grid.lay(starts[:, None].long(), 1).cumsum(-1)  # [B, 1, N, size]
        of_write = None if document is None else document.repeat_interleave(writes, -1)
        new, weight = _solve(k, v, gates, fade, of_write)
        states, new, state = _carry(k, new, weight, fade, of_write, state)
        if hold is not None and grid.stretch == min(hold, tokens):  # all of a stretch read the state before it
            held = states[:, :, :: grid.pieces].repeat_interleave(grid.pieces, 2)  # [B, H, N, K, V]
            if document is not None:
                first = document[:, :, :: grid.pieces, :1].repeat_interleave(grid.pieces, 2)
                held = held * (first == 0)[..., None]
            return grid.lift(q @ held, tokens).to(dtype), state
        token = torch.arange(grid.size, device=q.device)
        before = (token + 1 if hold is None else token // hold * hold) * writes  # writes of the chunk that it sees
        return grid.lift(_read(q, k, new, states, fade, before, document, of_write), tokens).to(dtype), state


def neutral_where_unreal(k: Tensor, gates: Gates, real: Tensor | None, writes: int) -> tuple[Tensor, Gates]:
    """A zero key with nothing fading is a step that never was."""
    if real is None:
        return k, gates
    real = real.repeat_interleave(writes, 1)[:, None]  # [B, 1, T * writes]
    log_keep = None if gates.log_keep is None else gates.log_keep.masked_fill(~real, 0.0)
    return k * real[..., None], gates._replace(log_keep=log_keep)


def _solve(
    k: Tensor, v: Tensor, gates: Gates, fade: Tensor | None, document: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """U [.., L, V] and W [.., L, K]: what a chunk writes is U - W S_0.  W is None where nothing is erased."""
    new = v if gates.write is None else v * gates.write[..., None]
    if gates.erase is None:
        return new, None
    erasing = k * gates.erase[..., None]
    system = erasing @ k.mT  # its diagonal and what is above are not read
    if fade is not None:
        system = system * _left(fade, fade, torch.ones_like(system[0, 0, 0], dtype=torch.bool).tril()).to(k.dtype)
        erasing = erasing * fade.exp().to(k.dtype)[..., None]
    if document is not None:
        system = system * (document[..., :, None] == document[..., None, :])
        erasing = erasing * (document == 0)[..., None]
    solved = torch.linalg.solve_triangular(system, torch.cat([new, erasing], -1), upper=False, unitriangular=True)
    new, weight = solved.split([v.shape[-1], k.shape[-1]], -1)
    return new, weight


def _carry(
    k: Tensor,
    new: Tensor,
    weight: Tensor | None,
    fade: Tensor | None,
    document: Tensor | None,
    state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """From chunk to chunk: the states before each [B, H, N, K, V], what each wrote, and the state after the last."""
    if state is None:
        state = k.new_zeros(*k.shape[:2], k.shape[-1], new.shape[-1])
    keep = None if fade is None else fade[..., -1:, None].exp().to(k.dtype)  # of the state, over a chunk
    k = k if fade is None else k * (fade[..., -1:] - fade).exp().to(k.dtype)[..., None]
    if document is not None:
        k = k * (document == document[..., -1:])[..., None]
        going_on = (document[..., -1:, None] == 0).to(k.dtype)
        keep = going_on if keep is None else keep * going_on
    states, written = [], []
    for n in range(k.shape[2]):
        states.append(state)
        written.append(new[:, :, n] if weight is None else new[:, :, n] - weight[:, :, n] @ state)
        state = (state if keep is None else state * keep[:, :, n]) + k[:, :, n].mT @ written[-1]
    return torch.stack(states, 2), torch.stack(written, 2), state


def _read(
    q: Tensor,
    k: Tensor,
    new: Tensor,
    states: Tensor,
    fade: Tensor | None,
    before: Tensor,
    document: Tensor | None,
    of_write: Tensor | None,
) -> Tensor:
    """What each token reads after the first before[i] writes of its chunk.  [B, H, N, size, V]."""
    seen = torch.arange(k.shape[-2], device=k.device) < before[:, None]  # [size, L]
    scores = q @ k.mT
    if document is not None and of_write is not None:
        scores = scores * (document[..., :, None] == of_write[..., None, :])
        q = q * (document == 0)[..., None]
    if fade is None:
        return q @ states + (scores * seen) @ new
    then = F.pad(fade, (1, 0))[..., before]  # [B, H, N, size]
    return (q * then.exp().to(q.dtype)[..., None]) @ states + (scores * _left(then, fade, seen).to(q.dtype)) @ new


def _left(then: Tensor, fade: Tensor, seen: Tensor) -> Tensor:
    """What is left of the write at j when the log-keeps have come to then[i]; 0 where it is not seen."""
    return (then[..., :, None] - fade[..., None, :]).masked_fill(~seen, -torch.inf).exp()


def _fill(x: Tensor, length: int) -> Tensor:
    """Zeros at the end of dimension 2 up to that length."""
    missing = length - x.shape[2]
    return x if missing == 0 else F.pad(x, [0, 0] * (x.dim() - 3) + [0, missing])
