"""One layer of a hybrid: softmax over a window and fast weights.

    kv = softmax(q k / sqrt(K)) v            over the tokens that the schedule shows, q and k with positions, and
                                             with what the attention component changes
    fw = S phi(q) / sqrt(K)                  S written by the update rule with phi(k), v
    y  = W_o norm(mix(fw, kv))               RMSNorm per head, optionally gated by SiLU(W_g x)

Both memories get the same queries, keys and values.  With `projections: separate`, or if the mixer gives each memory
its own heads, each memory has its own, of its own size.  If the output of a memory does not have the channels that the
mixer combines, a linear map comes before the mixer.

A memory that the mixer does not read is neither built nor computed, so the baselines are compositions too: fw_only
with delta is DeltaNet, kv_only without a window is softmax attention.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components._heads import HeadNorm, split_heads
from hqlt_lab.components.attention._base import Attention
from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.components.positions._base import Positions
from hqlt_lab.components.update_rules._base import UpdateRule
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.batch_layout import TokenPositions, compute_token_positions
from hqlt_lab.model.config import COMPONENT_KINDS, ModelConfig, OpsConfig
from hqlt_lab.model.fast_weights import scan_fast_weights
from hqlt_lab.model.memory_size_config import equal_size
from hqlt_lab.model.projections import ConvState, ProjectedTokens, ProjectingModule, Projections
from hqlt_lab.model.softmax_memory import make_tokens, next_attention_state, read_softmax
from hqlt_lab.model.state import AttentionState, CachedTokens, MemoryState
from hqlt_lab.ops.gates import GateTuple
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import build, parse_spec

KV_KINDS = ("attention", "positions")  # components of softmax


class ResidualProjection(nn.Linear):
    """A linear map whose output is added to the residual stream; its initial weights may be smaller than others'."""


class HybridMemory(ProjectingModule):
    """Softmax and fast-weight memory of one layer.

    forward(x [B, T, width], state, token_positions) -> y [B, T, width], state.  One call for all tokens and several
    calls for parts of them give the same result.

    The layer itself has the projections that its memories share, or those of its only memory; separate ones are in
    `projections`.
    """

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.width = config.width
        # the components as written in the settings, such as "delta" or {"name": "delta", "max_beta": 2}
        self.component_specs = specs = {kind: config.component_spec(kind, layer) for kind in COMPONENT_KINDS}
        self.ops = OpsConfig()
        self.silent: tuple[str, ...] = ()  # memories whose output is replaced by 0: "fw", "kv"
        self.schedule: Schedule = build("timing", specs["timing"])
        self.output_size = config.shared_size  # of the outputs that the mixer combines
        self.mixer: Mixer = build("mixer", specs["mixer"], **self.component_arguments("mixer"))
        self.sizes = config.memory_sizes(self.mixer.reads, self.mixer.own_heads)
        if len(self.sizes) == 1:  # the mixer passes on the output of this memory, so it is built for its size
            (size,) = self.sizes.values()
            self.output_size = equal_size(size.heads, size.value_dim)
            self.mixer = build("mixer", specs["mixer"], **self.component_arguments("mixer"))

        def build_component(kind: str) -> Any:
            return build(kind, specs[kind], **self.component_arguments(kind))

        self.update_rule: UpdateRule | None = build_component("update_rule") if "fw" in self.sizes else None
        self.attention: Attention | None = None
        self.positions: Positions | None = None
        if "kv" in self.sizes:
            self.attention = build_component("attention")
            self.positions = leave_out_input_positions(build_component("positions"))
        self.feature_map: FeatureMap | None = None
        if self.update_rule is not None:
            specs["feature_map"] = specs["feature_map"] or self.update_rule.feature_map
            self.feature_map = feature_map = build_component("feature_map")
            names = (parse_spec(kind, specs[kind])[0] for kind in ("update_rule", "feature_map"))
            check_rule_feature_map(self.update_rule, feature_map, self.sizes["fw"].key_dim, *names)

        self.projections: nn.ModuleDict | None = None
        if len(self.sizes) == 2 and not config.shares_projections(self.sizes, self.mixer.own_heads):
            writes = {"fw": self.writes, "kv": 1}
            self.projections = nn.ModuleDict(
                {name: Projections(config, size, writes[name]) for name, size in self.sizes.items()}
            )
        else:
            self.add_projections(config, next(iter(self.sizes.values()), config.shared_size), self.writes)
        self.output_maps = self.make_output_maps()
        heads, head_dim = self.output_size.heads, self.output_size.value_dim
        self.norm = HeadNorm(head_dim, eps=config.norm_eps) if config.head_norm else nn.Identity()
        self.to_gate = nn.Linear(config.width, heads * head_dim, bias=config.bias) if config.output_gate else None
        self.to_out = ResidualProjection(heads * head_dim, config.width, bias=config.bias)

    def component_arguments(self, kind: str) -> dict[str, Any]:
        """Return the arguments of a component of that kind: the width of the stream and the sizes of its memory."""
        size = self.output_size if kind == "mixer" else self.sizes["kv" if kind in KV_KINDS else "fw"]
        return size.arguments(self.width)

    def make_output_maps(self) -> nn.ModuleDict | None:
        """Return the linear maps of outputs that do not have the channels that the mixer combines; None without any."""
        maps = {}
        for name, size in self.sizes.items():
            channels = self.mixed_heads(name) * self.output_size.value_dim
            if size.channels != channels:
                maps[name] = nn.Linear(size.channels, channels, bias=False)
        return nn.ModuleDict(maps) if maps else None

    def mixed_heads(self, name: str) -> int:
        """Return the number of heads in which the mixer gets the output of a memory."""
        return self.output_size.heads if self.mixer.own_heads is None else self.mixer.own_heads[name]

    def forward(
        self, x: Tensor, state: MemoryState | None = None, token_positions: TokenPositions | None = None
    ) -> tuple[Tensor, MemoryState]:
        if token_positions is None:
            token_positions = compute_token_positions(x, None if state is None else state.document_length)
        projected, conv = self.project_for_memories(x, token_positions, None if state is None else state.conv)
        gates = None if self.update_rule is None else self.update_rule.gates(x)
        tokens = self.visible_tokens(projected, gates if self.schedule.needs_gate_cache else None, state)
        kv_cache_size = self.kv_cache_size(token_positions)
        kv, attention_state = self.read_window(
            x, projected["kv"].q, tokens["kv"], state, token_positions, kv_cache_size
        )
        fw, fast_weights = None, None
        if self.update_rule is not None and self.feature_map is not None and gates is not None:
            fw, fast_weights = scan_fast_weights(
                self.update_rule,
                self.feature_map,
                self.schedule,
                projected["fw"].q,
                tokens["fw"],
                gates,
                token_positions,
                None if state is None else state.fw,
            )
        fw, kv = (self.silence(name, self.map_output(name, output)) for name, output in (("fw", fw), ("kv", kv)))
        mixed = self.norm(self.mixer(x, fw, kv)).transpose(1, 2).flatten(2)  # [B, T, channels]
        if self.to_gate is not None:
            mixed = mixed * F.silu(self.to_gate(x))
        kv_cache = next_cache(tokens["kv"], self.kv_cache_capacity, kv_cache_size, token_positions, self.kv_writes)
        fw_cache = None
        if self.projections is not None:
            size = self.fw_cache_capacity
            fw_cache = next_cache(tokens["fw"], size, size, token_positions, self.writes)
        return self.to_out(mixed), MemoryState(
            token_positions.document_length, kv_cache, fast_weights, conv, attention_state, fw_cache
        )

    def project_for_memories(
        self, x: Tensor, token_positions: TokenPositions, conv_state: ConvState | None
    ) -> tuple[dict[str, ProjectedTokens], ConvState | None]:
        """Return queries, keys and values for each memory, and the new state of the convolutions."""
        if self.projections is None:
            projected = self.project(x, token_positions, conv_state)
            return {"fw": projected, "kv": projected}, projected.conv
        fw_state, kv_state = (None, None) if conv_state is None else (conv_state[:3], conv_state[3:])
        fw, kv = (
            self.projections_of(name).project(x, token_positions, past)
            for name, past in (("fw", fw_state), ("kv", kv_state))
        )
        return {"fw": fw, "kv": kv}, None if fw.conv is None or kv.conv is None else fw.conv + kv.conv

    def projections_of(self, name: str) -> ProjectingModule:
        """Return the module with the projections of a memory: the layer itself, unless they are separate."""
        module = self if self.projections is None else self.projections[name]
        assert isinstance(module, ProjectingModule)
        return module

    def visible_tokens(
        self, projected: dict[str, ProjectedTokens], cached_gates: GateTuple | None, state: MemoryState | None
    ) -> dict[str, CachedTokens]:
        """Return the cached tokens of each memory, followed by those of this call."""
        kv_cache, fw_cache = (None, None) if state is None else (state.kv_cache, state.fw_cache)
        if self.projections is None:
            tokens = CachedTokens(projected["kv"].k, projected["kv"].v, cached_gates).prepend_tokens(kv_cache)
            return {"fw": tokens, "kv": tokens}
        return {
            "fw": CachedTokens(projected["fw"].k, projected["fw"].v, cached_gates).prepend_tokens(fw_cache),
            "kv": CachedTokens(projected["kv"].k, projected["kv"].v).prepend_tokens(kv_cache),
        }

    def map_output(self, name: str, output: Tensor | None) -> Tensor | None:
        """Return the output of a memory in the heads and channels that the mixer combines."""
        if output is None:
            return None
        heads, size = self.mixed_heads(name), self.sizes[name]
        if (size.heads, size.value_dim) == (heads, self.output_size.value_dim):
            return output
        output = output.transpose(1, 2).flatten(2)
        if self.output_maps is not None and name in self.output_maps:
            output = self.output_maps[name](output)
        return split_heads(output, heads)

    def silence(self, name: str, output: Tensor | None) -> Tensor | None:
        """Return the output of a memory, or 0 if it is silent.  Its parameters then get gradients of 0, not None."""
        if output is None or name not in self.silent:
            return output
        return output.masked_fill(torch.ones((), dtype=torch.bool, device=output.device), 0.0)

    def own_components(self, name: str) -> list[nn.Module]:
        """Return the modules that only one of the memories uses, "fw" or "kv": components, projections, maps."""
        components: tuple[nn.Module | None, ...] = (self.attention, self.positions)
        if name == "fw":
            components = (self.update_rule, self.feature_map)
        modules = [component for component in components if component is not None] + self.mixer.own_modules(name)
        containers = (container for container in (self.projections, self.output_maps) if container is not None)
        return modules + [container[name] for container in containers if name in container]

    def set_backends(self, ops: OpsConfig) -> None:
        """Set the backends that compute the two memories."""
        self.ops = ops
        if self.update_rule is not None:
            self.update_rule.backend = ops.scan

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
        k, v = visible_tokens.k[:, :, :: self.kv_writes], visible_tokens.v[:, :, :: self.kv_writes]
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

    @property
    def writes(self) -> int:
        """Keys and values per token that the fast weights write."""
        return 1 if self.update_rule is None else self.update_rule.writes

    @property
    def kv_writes(self) -> int:
        """Keys and values per token in the KV cache: those of the fast weights too, if they are shared."""
        return self.writes if self.projections is None else 1

    @property
    def features(self) -> int:
        """Number of features of a key in the fast weights: the key dimension of the state."""
        assert self.feature_map is not None
        return self.feature_map.features(self.sizes["fw"].key_dim)

    @property
    def kv_cache_capacity(self) -> int | None:
        """Maximum number of tokens in the KV cache, or None if it grows with the sequence (softmax without window)."""
        pending = self.max_pending_tokens if self.projections is None else 0
        if self.positions is None:
            return pending
        return None if self.schedule.attention_span is None else max(self.schedule.attention_span, pending)

    @property
    def fw_cache_capacity(self) -> int:
        """Maximum number of tokens in the cache of the fast weights; 0 if they use the KV cache."""
        return 0 if self.projections is None else self.max_pending_tokens

    @property
    def max_pending_tokens(self) -> int:
        """Maximum number of tokens that are not in the fast weights yet."""
        return 0 if self.update_rule is None else self.schedule.max_pending_tokens


def next_cache(
    tokens: CachedTokens, capacity: int | None, size: int | None, token_positions: TokenPositions, writes: int
) -> CachedTokens | None:
    """Return the last `size` tokens (None: all), which are carried to the next call; None without capacity."""
    if capacity == 0:
        return None
    return tokens if size is None else tokens.keep_last_tokens(size, token_positions, writes)


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
