"""One layer of a hybrid: softmax over a window and fast weights, with the same queries, keys and values.

    kv = softmax(q k / sqrt(K)) v            over the tokens that the schedule shows, q and k with positions, and
                                             with what the attention component changes
    fw = S phi(q) / sqrt(K)                  S written by the update rule with phi(k), v
    y  = W_o norm(mix(fw, kv))               RMSNorm per head, optionally gated by SiLU(W_g x)

A memory that the mixer does not read is neither built nor computed, so the baselines are compositions too: fw_only
with delta is DeltaNet, kv_only without a window is softmax attention.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components._heads import HeadNorm
from hqlt_lab.components.attention._base import Attention
from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.positions._base import Positions
from hqlt_lab.components.update_rules._base import UpdateRule
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.batch_layout import TokenPositions, compute_token_positions
from hqlt_lab.model.config import COMPONENT_KINDS, ModelConfig, OpsConfig
from hqlt_lab.model.fast_weights import scan_fast_weights
from hqlt_lab.model.short_convolution import ShortConvolution
from hqlt_lab.model.softmax_memory import make_tokens, next_attention_state, read_softmax
from hqlt_lab.model.state import AttentionState, CachedTokens, MemoryState
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import build, parse_spec


class ResidualProjection(nn.Linear):
    """A linear map whose output is added to the residual stream; its initial weights may be smaller than others'."""


class HybridMemory(nn.Module):
    """Softmax and fast-weight memory of one layer.

    forward(x [B, T, width], state, token_positions) -> y [B, T, width], state.  One call for all tokens and several
    calls for parts of them give the same result.
    """

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        # the components as written in the settings, such as "delta" or {"name": "delta", "max_beta": 2}
        self.component_specs = specs = {kind: config.component_spec(kind, layer) for kind in COMPONENT_KINDS}

        def build_component(kind: str) -> Any:
            return build(kind, specs[kind], width=width, heads=heads)

        self.heads, self.ops = heads, OpsConfig()
        self.silent: tuple[str, ...] = ()  # memories whose output is replaced by 0: "fw", "kv"
        self.schedule: Schedule = build_component("timing")
        self.mixer: Mixer = build_component("mixer")
        self.update_rule: UpdateRule | None = build_component("update_rule") if "fw" in self.mixer.reads else None
        self.attention: Attention | None = None
        self.positions: Positions | None = None
        if "kv" in self.mixer.reads:
            self.attention = build_component("attention")
            self.positions = leave_out_input_positions(build_component("positions"))
        self.feature_map: FeatureMap | None = None
        if self.update_rule is not None:
            specs["feature_map"] = specs["feature_map"] or self.update_rule.feature_map
            self.feature_map = feature_map = build_component("feature_map")
            names = (parse_spec(kind, specs[kind])[0] for kind in ("update_rule", "feature_map"))
            check_rule_feature_map(self.update_rule, feature_map, width // heads, *names)
        self.writes = 1 if self.update_rule is None else self.update_rule.writes

        self.to_q = nn.Linear(width, width, bias=config.bias)
        self.to_k = nn.Linear(width, width * self.writes, bias=config.bias)
        self.to_v = nn.Linear(width, width * self.writes, bias=config.bias)
        self.convolutions = None
        if config.short_conv:
            sizes = (width, width * self.writes, width * self.writes)
            self.convolutions = nn.ModuleList(ShortConvolution(size, config.short_conv) for size in sizes)
        self.value_activation = F.silu if config.value_activation == "silu" else nn.Identity()
        self.norm = HeadNorm(width // heads, eps=config.norm_eps) if config.head_norm else nn.Identity()
        self.to_gate = nn.Linear(width, width, bias=config.bias) if config.output_gate else None
        self.to_out = ResidualProjection(width, width, bias=config.bias)

    def forward(
        self, x: Tensor, state: MemoryState | None = None, token_positions: TokenPositions | None = None
    ) -> tuple[Tensor, MemoryState]:
        if token_positions is None:
            token_positions = compute_token_positions(x, None if state is None else state.document_length)
        q, k, v, conv = self.project(x, token_positions, None if state is None else state.conv)
        gates = None if self.update_rule is None else self.update_rule.gates(x)
        visible_tokens = CachedTokens(k, v, gates if self.schedule.needs_gate_cache else None)
        if state is not None and state.kv_cache is not None:
            visible_tokens = state.kv_cache.append_tokens(visible_tokens)
        kv_cache_size = self.kv_cache_size(token_positions)
        kv, attention_state = self.read_window(x, q, visible_tokens, state, token_positions, kv_cache_size)
        fw, fast_weights = None, None
        if self.update_rule is not None and self.feature_map is not None and gates is not None:
            fw, fast_weights = scan_fast_weights(
                self.update_rule,
                self.feature_map,
                self.schedule,
                q,
                visible_tokens,
                gates,
                token_positions,
                None if state is None else state.fw,
            )
        fw, kv = self.silence("fw", fw), self.silence("kv", kv)
        mixed = self.norm(self.mixer(x, fw, kv)).transpose(1, 2).flatten(2)  # [B, T, width]
        if self.to_gate is not None:
            mixed = mixed * F.silu(self.to_gate(x))
        kv_cache = self.next_kv_cache(visible_tokens, token_positions, kv_cache_size)
        return self.to_out(mixed), MemoryState(
            token_positions.document_length, kv_cache, fast_weights, conv, attention_state
        )

    def silence(self, name: str, output: Tensor | None) -> Tensor | None:
        """Return the output of a memory, or 0 if it is silent.  Its parameters then get gradients of 0, not None."""
        if output is None or name not in self.silent:
            return output
        return output.masked_fill(torch.ones((), dtype=torch.bool, device=output.device), 0.0)

    def own_components(self, name: str) -> list[nn.Module]:
        """Return the components, and parts of the mixer, that only one of the memories uses, "fw" or "kv"."""
        components = (self.update_rule, self.feature_map) if name == "fw" else (self.attention, self.positions)
        return [component for component in components if component is not None] + self.mixer.own_modules(name)

    def set_backends(self, ops: OpsConfig) -> None:
        """Set the backends that compute the two memories."""
        self.ops = ops
        if self.update_rule is not None:
            self.update_rule.backend = ops.scan

    def project(
        self, x: Tensor, token_positions: TokenPositions, conv_state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...] | None]:
        """Return q [B, H, T, K], k and v [B, H, T * writes, K|V], and the new state of the convolutions."""
        q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        conv = None
        if self.convolutions is not None:
            inputs = zip(self.convolutions, (q, k, v), conv_state or (None, None, None), strict=True)
            (q, k, v), conv = zip(*(convolve(u, token_positions, past) for convolve, u, past in inputs), strict=True)
        return (
            self.split_heads(q, 1),
            self.split_heads(k, self.writes),
            self.split_heads(self.value_activation(v), self.writes),
            conv,
        )

    def split_heads(self, u: Tensor, writes: int) -> Tensor:
        """Reshape [B, T, H * writes * K] to [B, H, T * writes, K]."""
        return u.unflatten(-1, (self.heads, writes, -1)).transpose(1, 2).flatten(2, 3)

    def read_window(
        self,
        x: Tensor,
        q: Tensor,
        visible_tokens: CachedTokens,
        state: MemoryState | None,
        token_positions: TokenPositions,
        kv_cache_size: int | None,
    ) -> tuple[Tensor | None, AttentionState | None]:
        """Return the output of softmax [B, H, T, V] and its new state.

        If a token has several pairs, softmax reads the first.
        """
        if self.attention is None or self.positions is None:
            return None, None
        # without past tokens, and with one document per row, cheaper forms of attention are possible
        position = None if state is None and not token_positions.is_packed else token_positions.position
        past = None if state is None else state.attention
        k, v = visible_tokens.k[:, :, :: self.writes], visible_tokens.v[:, :, :: self.writes]
        tokens, sinks = make_tokens(self.attention, x, k, v, past), None if past is None else past.sinks
        kv = read_softmax(
            self.attention, self.positions, self.schedule, self.ops.attention, x, q, tokens, position, sinks
        )
        return kv, next_attention_state(tokens, past, kv_cache_size, self.schedule.limited_sinks, token_positions)

    def kv_cache_size(self, token_positions: TokenPositions) -> int | None:
        """Return the number of tokens to carry to the next call, or None for all."""
        capacity = self.kv_cache_capacity
        if capacity is not None:
            return capacity
        # rows of different lengths are aligned at their end, so an unlimited cache is as long as the longest document
        return None if token_positions.is_uniform else int(token_positions.document_length.max())

    def next_kv_cache(
        self, visible_tokens: CachedTokens, token_positions: TokenPositions, size: int | None
    ) -> CachedTokens | None:
        """Return the last `size` tokens (None: all), which are carried to the next call."""
        if self.kv_cache_capacity == 0:
            return None
        return visible_tokens if size is None else visible_tokens.keep_last_tokens(size, token_positions, self.writes)

    @property
    def features(self) -> int:
        """Number of features of a key in the fast weights: the key dimension of the state."""
        key_dim = self.to_q.out_features // self.heads
        return key_dim if self.feature_map is None else self.feature_map.features(key_dim)

    @property
    def kv_cache_capacity(self) -> int | None:
        """Maximum number of tokens in the KV cache, or None if it grows with the sequence (softmax without window)."""
        pending = 0 if self.update_rule is None else self.schedule.max_pending_tokens
        if self.positions is None:
            return pending
        return None if self.schedule.attention_span is None else max(self.schedule.attention_span, pending)


def leave_out_input_positions(positions: Positions) -> Positions:
    """Return what a layer applies of positions: nothing of those that are only added to the input of the model."""
    is_input_only = type(positions).embed is not Positions.embed and type(positions).rotate is Positions.rotate
    return Positions() if is_input_only else positions


def check_rule_feature_map(
    rule: UpdateRule, feature_map: FeatureMap, key_dim: int, rule_name: str, map_name: str
) -> None:
    """Raise ConfigError if the rule requires a property that the feature map does not declare."""
    if rule.needs_unit_keys and not (feature_map.has_unit_norm or feature_map.has_bounded_norm):
        raise ConfigError.at(
            "feature_map",
            "keys_not_normalized",
            f"update_rule {rule_name!r} diverges unless keys are unit vectors, and feature_map {map_name!r} does not "
            "normalize them.",
            "Use silu_l2, or leave feature_map out.",
        )
    if rule.needs_nonnegative_features and not (feature_map.is_nonnegative or feature_map.has_nonnegative_products):
        raise ConfigError.at(
            "feature_map",
            "features_not_positive",
            f"features of feature_map {map_name!r} can be negative, and then the normalizer of update_rule "
            f"{rule_name!r} can be zero.",
            "Use elu_plus_one, or normalizer: none.",
        )
    if rule.has_key_channels and feature_map.features(key_dim) != key_dim:
        raise ConfigError.at(
            "feature_map",
            "features_differ_from_key_channels",
            f"update_rule {rule_name!r} has a gate for each of the {key_dim} channels of a key, and feature_map "
            f"{map_name!r} makes {feature_map.features(key_dim)} features of them.",
            "Use a feature map that keeps the number of channels, or a rule with one gate per head.",
        )
