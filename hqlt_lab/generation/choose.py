"""One token from each row of logits.

    p = softmax(logits / temperature), sorted, without what top_k and top_p cut away
    token = the first whose cumulative probability exceeds u,   u ~ U(0, 1)

One number u per token, drawn on the CPU from the row's own generator: what a row draws depends on (seed, row) and its
logits alone, not on its neighbours or the device.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from hqlt_lab.errors import TrainingError
from hqlt_lab.generation.sampling import Sampling


def draws_of(seed: int, row: int) -> torch.Generator:
    """The row's own source of chance."""
    digest = hashlib.sha256(f"{seed}/{row}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def choose(logits: Tensor, options: Sampling, draws: Sequence[torch.Generator]) -> list[int]:
    """The next token of each row, of logits [N, vocabulary] and a generator per row."""
    if not logits.isfinite().all():
        raise TrainingError("The model's logits are not finite, so there is no next token. Has its training diverged?")
    if options.temperature == 0:
        return [int(token) for token in logits.argmax(1)]
    chances, order = likeliest(logits.double() / options.temperature, options)
    total = chances.cumsum(1)  # [N, candidates]
    u = torch.stack([torch.rand(1, generator=one, dtype=torch.float64) for one in draws]).to(logits.device)  # [N, 1]
    # below the end even where the product rounds up: the token found has a chance above 0
    place = torch.minimum(u * total[:, -1:], torch.nextafter(total[:, -1:], torch.zeros_like(u)))
    return order.gather(1, torch.searchsorted(total, place, right=True))[:, 0].tolist()


def likeliest(logits: Tensor, options: Sampling) -> tuple[Tensor, Tensor]:
    """The probabilities of those that may be drawn [N, candidates], the highest first, and which tokens they are."""
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    ordered, order = ordered[:, : options.top_k], order[:, : options.top_k]
    chances = ordered.softmax(1)
    if options.top_p is not None:
        # a token stays while those before it do not reach top_p; the first always does
        before = chances.cumsum(1) - chances
        chances = chances.masked_fill(before >= options.top_p, 0.0)
    return chances, order
