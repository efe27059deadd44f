"""Interface of an attention component: how softmax reads the tokens of its window.

    kv_t = finish(x_t, sum_s softmax_s(q'_t . k'_s / sqrt(K') + sum_{s < r <= t} log f_r) v'_s)

The layer projects q, k and v, keeps the cache, applies positions and computes the softmax on one of its backends, under
any timing.  A component only defines what is different from plain softmax, in up to four optional methods:

    transform       replaces queries, keys and values: normalize or scale them, or append channels
    log_forget      a forget gate per token and head; the scores of older tokens decay by the gates since then
    key_features    numbers of a token that `transform` needs whenever the token is read as a key; they are cached
    finish          changes the output of softmax

`transform` gets the keys and values of all tokens that are read, including those of earlier calls.  The cache stores
them as they were projected, because the fast weights use them too.  So the result for a key must not depend on other
keys or on their number.  If `transform` needs more of a token than k and v, such as a gate computed from x,
`key_features` returns it.  Positions are applied after `transform`.

`forward` of the layer calls `key_features` and `log_forget` on the tokens of the call, then `transform`, softmax and
`finish`.  Every parameter must be used: the conformance checks reject a parameter without a gradient.  Initial values
other than N(0, std^2) are set in `reset_parameters`.
"""

from typing import NamedTuple

from torch import Tensor, nn


class AttentionInputs(NamedTuple):
    """Inputs of softmax in one call: T queries and S keys.  The last T keys belong to the tokens of the queries."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, S, K]
    v: Tensor  # [B, H, S, V]
    features: Tensor | None  # [B, H, S, F] what `key_features` returned for each key
    num_visible: Tensor  # [B or 1, T] number of keys that each query sees


class Attention(nn.Module):
    """Plain softmax; a component overrides the methods in which it differs."""

    def key_features(self, x: Tensor) -> Tensor | None:
        """Return numbers [B, H, T, F] of each token of the stream x [B, T, width] to cache with its key, or None."""
        return None

    def log_forget(self, x: Tensor) -> Tensor | None:
        """Return the logarithms [B, H, T], at most 0, of the forget gates of x [B, T, width]; None: no forgetting.

        A token's gate applies to all tokens before it.
        """
        return None

    def transform(self, x: Tensor, inputs: AttentionInputs) -> AttentionInputs:
        """Return the inputs with other queries, keys or values; x [B, T, width] is that of the queries.

        Queries and keys may get another number of channels, and values too if `finish` restores it.
        """
        return inputs

    def finish(self, x: Tensor, output: Tensor) -> Tensor:
        """Return the output of the memory [B, H, T, V], given the output of softmax."""
        return output
