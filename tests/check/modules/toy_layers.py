"""A gated linear attention layer that keeps every promise, and its variants, each with one known bug.

    S_t = a_t S_{t-1} + v_t k_t^T,   y_t = S_t q_t,   a_t = sigmoid(w x_t + b), per head

The bugs are those of published implementations, in small.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

CHUNK = 16


class ToyLayer(nn.Module):
    """Chunk-parallel gated linear attention with a mask, a cache and packed documents."""

    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.to_decay = nn.Linear(width, heads, bias=False)
        self.decay_bias = nn.Parameter(torch.full((heads,), 1.0))
        self.to_out = nn.Linear(width, width, bias=False)

    def state_bytes(self):
        return 4 * self.heads * self.head_dim**2

    def log_decay(self, x):
        return F.logsigmoid(self.to_decay(x) + self.decay_bias)  # [B, T, H]

    def apply_mask(self, k, v, g, mask):
        """Padding writes nothing and decays nothing."""
        return k, v * mask[..., None, None], g * mask[..., None]

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        if cu_seqlens is not None:
            borders = cu_seqlens.tolist()
            pieces = [self.scan_layer(x[:, a:b])[0] for a, b in pairwise(borders)]
            return torch.cat(pieces, 1), None
        return self.scan_layer(x, mask, cache)

    def scan_layer(self, x, mask=None, state=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, self.head_dim)).unbind(2)  # [B, T, H, D]
        g = self.log_decay(x)
        if mask is not None:
            k, v, g = self.apply_mask(k, v, g, mask)
        if state is None:
            state = self.empty_state(x)
        outputs = []
        for start in range(0, x.shape[1], CHUNK):
            chunk = [tensor[:, start : start + CHUNK] for tensor in (q, k, v, g)]
            output, state = self.scan_chunk(*chunk, state)
            outputs.append(output)
        return self.to_out(torch.cat(outputs, 1).flatten(-2).to(x.dtype)), state

    def empty_state(self, x):
        return x.new_zeros(len(x), self.heads, self.head_dim, self.head_dim)

    def accumulate(self, g):
        return g.cumsum(1)

    def scan_chunk(self, q, k, v, g, state):
        """Return the reads of a chunk and the state after it."""
        total = self.accumulate(g)  # [B, C, H]
        scores = torch.einsum("bthd,bshd->btsh", q, k) * self.pairwise_decay(total)
        outputs = torch.einsum("btsh,bshd->bthd", scores, v)
        outputs = outputs + torch.einsum("bthk,bhkv->bthv", q * total.exp()[..., None], state)
        kept = (total[:, -1:] - total).exp()[..., None] * k
        state = state * total[:, -1].exp()[..., None, None] + torch.einsum("bthk,bthv->bhkv", kept, v)
        return outputs, state

    def pairwise_decay(self, total):
        differences = total[:, :, None] - total[:, None]  # [B, T, S, H]
        return differences.exp() * torch.ones(total.shape[1], total.shape[1]).tril()[..., None].to(total)


class FutureLeak(ToyLayer):
    """The causal mask of a chunk lets a token see the next one."""

    def pairwise_decay(self, total):
        size = total.shape[1]
        differences = total[:, :, None] - total[:, None]
        return differences.clamp(max=0).exp() * torch.ones(size, size).tril(1)[..., None].to(total)


class LateChunkLeak(ToyLayer):
    """Gates are normalized by the last token of each full chunk, so a sequence shorter than a chunk shows nothing."""

    def log_decay(self, x):
        g = super().log_decay(x)
        end = torch.arange(x.shape[1]) // CHUNK * CHUNK + CHUNK - 1
        last = g[:, end.clamp(max=x.shape[1] - 1)]
        return torch.where((end < x.shape[1])[:, None], g + 0.1 * last, g)


class RoundingLeak(ToyLayer):
    """Decays within a chunk are relative to its middle token, which cancels up to rounding (fla#1240)."""

    def pairwise_decay(self, total):
        size = total.shape[1]
        anchor = total[:, size // 2 : size // 2 + 1]
        decay = (total - anchor).exp()[:, :, None] * (anchor - total).exp()[:, None]
        return decay * torch.ones(size, size).tril()[..., None].to(total)


class MaskWithoutDecay(ToyLayer):
    """Padding masks the value, but the state decays on."""

    def apply_mask(self, k, v, g, mask):
        return k, v * mask[..., None, None], g


class IgnoresMask(ToyLayer):
    """Padding is not masked at all."""

    def apply_mask(self, k, v, g, mask):
        return k, v, g


class CacheOffset(ToyLayer):
    """A prompt is cached without its last token."""

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        output, state = super().forward(x, mask, cache, cu_seqlens)
        if cu_seqlens is None and x.shape[1] > 1:
            _, state = super().forward(x[:, :-1], None if mask is None else mask[:, :-1], cache)
        return output, state


class CumsumOverHeads(ToyLayer):
    """The log decays are summed over the heads instead of the tokens."""

    def accumulate(self, g):
        return g.cumsum(2)


class CumsumOverBatch(ToyLayer):
    """The log decays are summed over the rows of the batch instead of the tokens."""

    def accumulate(self, g):
        return g.cumsum(0)


class BiasInLinear(ToyLayer):
    """The initial decay is the bias of a linear layer, which the initialization of a backbone sets to 0."""

    def __init__(self, width=8, heads=2):
        super().__init__(width, heads)
        self.to_decay = nn.Linear(width, heads)
        nn.init.constant_(self.to_decay.bias, 3.0)


class OverwritingBackbone(nn.Module):
    """A backbone that overwrites what its layers set in reset_parameters."""

    class Layer(ToyLayer):
        def __init__(self, width):
            super().__init__(width)
            self.reset_parameters()

        def reset_parameters(self):
            nn.init.constant_(self.decay_bias, 3.0)

    def __init__(self, width=8):
        super().__init__()
        self.layer = self.Layer(width)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        return self.layer(x, mask, cache, cu_seqlens)


class WrongStateSize(ToyLayer):
    """The declared size leaves out the heads."""

    def state_bytes(self):
        return 4 * self.head_dim**2


class GrowingState(ToyLayer):
    """The cache keeps the whole input, of which only the sum is needed."""

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        past, state = cache or (x[:, :0], None)
        output, state = super().forward(x, mask, state, cu_seqlens)
        return output, (torch.cat([past, x], 1), state)


class MixedRows(ToyLayer):
    """The decay is centered over the batch."""

    def log_decay(self, x):
        return super().log_decay(x - x.mean(0, keepdim=True))


class LostDtype(ToyLayer):
    """The output is float32 whatever the input is."""

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        output, state = super().forward(x, mask, cache, cu_seqlens)
        return output.float(), state


class UnusedParameter(ToyLayer):
    """A parameter that does not enter the output."""

    def __init__(self, width=8, heads=2):
        super().__init__(width, heads)
        self.skip = nn.Parameter(torch.ones(width))


class LeakingDocuments(ToyLayer):
    """The boundaries of documents are accepted and ignored."""

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        return super().forward(x, mask, cache)


class UnsavedValue(ToyLayer):
    """A random projection that is neither a parameter nor a buffer."""

    def __init__(self, width=8, heads=2):
        super().__init__(width, heads)
        self.projection = [torch.randn(width, width)]

    def forward(self, x, mask=None, cache=None, cu_seqlens=None):
        return super().forward(x + x @ self.projection[0].to(x), mask, cache, cu_seqlens)


class Nondeterministic(ToyLayer):
    """Noise that does not stop in evaluation mode."""

    def log_decay(self, x):
        return super().log_decay(x + 1e-4 * torch.randn_like(x))
