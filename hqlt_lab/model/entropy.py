"""How widely softmax looks: the entropy of its probabilities, exact, under the schedule's mask.

    H_t = -sum_s p_ts log p_ts,   p_t = softmax(q_t k / sqrt(K)) over the s that the schedule shows to t

0 where one token takes all, log n where n visible tokens share alike.  Probabilities are not at hand when a layer has
answered, so they are computed again, of the last queries of each row and a few at a time.
"""

import torch
from torch import Tensor

from hqlt_lab.model.layout import Places
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import no_autocast, precise

MOST = 256  # queries of a row
AT_ONCE = 64  # of these


def attention_entropy(memory: HybridMemory, x: Tensor, places: Places) -> Tensor:
    """The mean over the last real queries of each row, [H], of a layer that reads x [B, T, width] without a past."""
    assert memory.positions is not None
    q, k, _, _ = memory.project(x, places, None)
    q, k = (memory.positions.turn(u, places.place) for u in (q, k[:, :, :: memory.writes]))
    place = places.place.expand(len(x), -1)
    lengths = [x.shape[1]] * len(x) if places.length is None else places.length.tolist()
    with no_autocast(x):
        q, k = precise(q) * q.shape[-1] ** -0.5, precise(k)
        total = torch.zeros_like(q[0, :, 0, 0])
        for row, length in enumerate(lengths):
            for first in range(max(length - MOST, 0), length, AT_ONCE):
                queries = slice(first, min(first + AT_ONCE, length))
                total += entropies(q[row], k[row], memory.schedule, place[row], queries).sum(-1)
        return total / sum(min(length, MOST) for length in lengths)


def entropies(q: Tensor, k: Tensor, schedule: Schedule, place: Tensor, queries: slice) -> Tensor:
    """Of these queries of one row, [H, Q]; q is scaled, q and k [H, T, K], place [T]."""
    reach = queries.start if schedule.span is None else schedule.span - 1
    index = torch.arange(max(queries.start - reach, 0), queries.stop, device=q.device)  # keys that any of them sees
    back = index - torch.arange(queries.start, queries.stop, device=q.device)[:, None]  # [Q, keys], negative: before
    t = place[queries, None]
    sees = schedule.softmax_sees_at(t, t + back)
    scores = (q[:, queries] @ k[:, index].mT).masked_fill(~sees, -torch.inf)
    return torch.special.entr(scores.softmax(-1)).sum(-1)
