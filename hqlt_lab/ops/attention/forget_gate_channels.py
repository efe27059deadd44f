"""Softmax scores that decay with forget gates, as extra channels of queries and keys.

    score_ts = q_t . k_s / sqrt(K) + c_t - c_s          c_t = sum of log f up to token t, f <= 1

The product of (1, c_t) and (-c_s, 1) is c_t - c_s, so any kernel of plain softmax can add it.  But c grows with the
sequence, and the small difference of two large numbers has few digits.  So each block of keys has a reference R, the
value of c at its first token, and a channel of its own:

    q_t || (1, c_t - R_1, c_t - R_2, ...)      k_s || (R_b - c_s, 1 in the channel of its block b, 0 in the others)

R_b - c_s is at most the decay within a block, and c_t - R_b at most the decay of the pair itself, so the rounding error
does not grow with the sequence.  A query whose window reaches at most one band back needs the channels
of two bands, which alternate.

c is float64, its differences are taken in float64, and queries and keys are at least float32.  The queries are scaled
so that a kernel may divide the product by the square root of the extended number of channels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_BLOCK_SIZE = 512  # tokens that share a reference
MAX_BLOCKS = 32
BAND_CHANNELS = 3  # extra channels of a window


def block_size(length: int) -> int:
    """Return the number of tokens that share a reference, in a sequence without a window."""
    return max(MIN_BLOCK_SIZE, -(-length // MAX_BLOCKS))


def count_causal_channels(length: int) -> int:
    """Return the number of extra channels of a sequence without a window."""
    return 1 + -(-length // block_size(length))


def add_causal_channels(q: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Extend q and k [B, H, T, K], whose queries see all keys up to their own, by the decay c [B, H, T]."""
    size = block_size(k.shape[2])
    reference = decay[:, :, ::size]  # [B, H, N]
    block = torch.arange(k.shape[2], device=k.device) // size
    number = torch.arange(reference.shape[2], device=k.device)
    is_seen = number <= block[:, None]  # [T, N]
    query_channels = (decay[..., None] - reference[:, :, None]).where(is_seen, 0.0)  # [B, H, T, N]
    return add_channels(q, k, query_channels, reference[:, :, block] - decay, number == block[:, None])


def add_band_channels(q: Tensor, k: Tensor, decay: Tensor, band_width: int) -> tuple[Tensor, Tensor]:
    """Extend q [B, H, T, K] and k [B, H, P + T, K] by the decay c [B, H, P + T].

    Bands of `band_width` queries begin at the first query; each query sees keys of its own band and of the one before.
    """
    past_keys = k.shape[2] - q.shape[2]
    index = torch.arange(-past_keys, q.shape[2], device=k.device)
    band = index.div(band_width, rounding_mode="floor").clamp(min=-1)  # [P + T]; keys before band -1 are not seen
    first = (torch.arange(-1, int(-(-q.shape[2] // band_width)), device=k.device) * band_width + past_keys).clamp(min=0)
    reference = decay[:, :, first]  # [B, H, 1 + N], that of band -1 first
    query_band, query_decay = band[past_keys:], decay[:, :, past_keys:]
    own, previous = (query_decay - reference[:, :, query_band + offset] for offset in (1, 0))
    is_even = query_band % 2 == 0
    query_channels = torch.stack([own.where(is_even, previous), previous.where(is_even, own)], -1)
    parity = torch.arange(2, device=k.device) == band[:, None] % 2  # [P + T, 2]
    return add_channels(q, k, query_channels, reference[:, :, band + 1] - decay, parity)


def add_channels(
    q: Tensor, k: Tensor, query_channels: Tensor, key_channel: Tensor, block_channels: Tensor
) -> tuple[Tensor, Tensor]:
    """Append (1, query_channels [B, H, T, N]) to q, and (key_channel [B, H, S], block_channels [S, N]) to k."""
    extended = q.shape[3] + 1 + query_channels.shape[3]
    query_channels = F.pad(query_channels, (1, 0), value=1.0).to(q.dtype) * extended**0.5
    blocks = block_channels.to(k.dtype).expand(*k.shape[:2], -1, -1)
    q = torch.cat([q * (extended / q.shape[3]) ** 0.5, query_channels], -1)
    return q, torch.cat([k, key_channel[..., None].to(k.dtype), blocks], -1)
