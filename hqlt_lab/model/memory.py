"""One layer of a hybrid: softmax over a window and fast weights, fed by the same queries, keys and values.

    kv = softmax(q k / sqrt(K)) v            over what the schedule shows, q and k with positions
    fw = S phi(q) / sqrt(K)                  S written by the update rule with phi(k), v
    y  = W_o norm(mix(fw, kv))               RMSNorm per head, optionally gated by SiLU(W_g x)

A memory that the mixer does not read is neither built nor computed, so the baselines are compositions too: fw_only
with delta is DeltaNet, kv_only without a window is softmax attention.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import PARTS, ModelConfig, OpsConfig
from hqlt_lab.model.convolution import ShortConvolution
from hqlt_lab.model.layout import Places, places_of
from hqlt_lab.model.recall import recall
from hqlt_lab.model.state import MemoryState, Tokens
from hqlt_lab.ops.attention import attend
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import build, split


class ToResidual(nn.Linear):
    """A linear map whose output is added to the residual stream; it may start smaller than others."""


class HeadNorm(nn.RMSNorm):
    """RMSNorm whose weight takes the precision of its input, as that of a linear map does: torch fuses no other."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class HybridMemory(nn.Module):
    """forward(x [B, T, width], state, places) -> y [B, T, width], state: one call or many give the same."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.specs = specs = {kind: config.part(kind, layer) for kind in PARTS}  # the parts as they are written

        def part(kind: str) -> Any:
            return build(kind, specs[kind], width=width, heads=heads)

        self.heads, self.ops = heads, OpsConfig()
        self.schedule: Schedule = part("timing")
        self.mixer = part("mixer")
        self.update_rule = part("update_rule") if "fw" in self.mixer.reads else None
        self.positions = part("positions") if "kv" in self.mixer.reads else None
        self.feature_map: nn.Module | None = None
        if self.update_rule is not None:
            specs["feature_map"] = specs["feature_map"] or self.update_rule.feature_map
            self.feature_map = part("feature_map")
            names = (split(kind, specs[kind])[0] for kind in ("update_rule", "feature_map"))
            check_pair(self.update_rule, self.feature_map, *names)
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
        self.to_out = ToResidual(width, width, bias=config.bias)

    def forward(
        self, x: Tensor, state: MemoryState | None = None, places: Places | None = None
    ) -> tuple[Tensor, MemoryState]:
        places = places or places_of(x, None if state is None else state.count)
        q, k, v, conv = self.project(x, places, None if state is None else state.conv)
        gates = None if self.update_rule is None else self.update_rule.gates(x)
        seen = Tokens(k, v, gates if self.update_rule is not None and self.schedule.keeps_gates else None)
        if state is not None and state.ring is not None:
            seen = state.ring.then(seen)
        # without a past, and with one document per row, the cheapest forms of attention will do
        place = None if state is None and not places.packed else places.place
        kv = self.attend(q, seen, place) if self.positions is not None else None
        fw, fast_weights = None, None
        if self.update_rule is not None and self.feature_map is not None:
            before = None if state is None else state.fw
            rule, feature_map = self.update_rule, self.feature_map
            fw, fast_weights = recall(rule, feature_map, self.schedule, q, seen, gates, places, before)
        mixed = self.norm(self.mixer(x, fw, kv)).transpose(1, 2).flatten(2)  # [B, T, width]
        if self.to_gate is not None:
            mixed = mixed * F.silu(self.to_gate(x))
        return self.to_out(mixed), MemoryState(places.end, self.ring(seen, places), fast_weights, conv)

    def use(self, ops: OpsConfig) -> None:
        """Have the memories computed by these backends."""
        self.ops = ops
        if self.update_rule is not None:
            self.update_rule.backend = ops.scan

    def project(
        self, x: Tensor, places: Places, past: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...] | None]:
        """q [B, H, T, K]; k, v [B, H, T * writes, K|V]; the convolutions' inputs to hand on."""
        q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        conv = None
        if self.convolutions is not None:
            pairs = zip(self.convolutions, (q, k, v), past or (None, None, None), strict=True)
            (q, k, v), conv = zip(*(convolve(u, places, before) for convolve, u, before in pairs), strict=True)
        return self.split(q, 1), self.split(k, self.writes), self.split(self.value_activation(v), self.writes), conv

    def split(self, u: Tensor, writes: int) -> Tensor:
        """[B, T, H * writes * K] -> [B, H, T * writes, K]."""
        return u.unflatten(-1, (self.heads, writes, -1)).transpose(1, 2).flatten(2, 3)

    def attend(self, q: Tensor, seen: Tokens, place: Tensor | None) -> Tensor:
        """The KV memory's answer [B, H, T, V]; of several pairs per token softmax sees the first."""
        assert self.positions is not None
        k, v = seen.k[:, :, :: self.writes], seen.v[:, :, :: self.writes]
        t = torch.arange(q.shape[2], device=q.device)[None] if place is None else place
        earlier = torch.arange(q.shape[2] - k.shape[2], 0, device=q.device)
        s = torch.cat([t[:, :1] + earlier, t], 1)  # the ring's places, then those of this call
        return attend(self.positions.turn(q, t), self.positions.turn(k, s), v, self.schedule, place, self.ops.attention)

    def ring(self, seen: Tokens, places: Places) -> Tokens | None:
        """The tokens to hand on."""
        room = self.room
        if room is None and places.plain:
            return seen
        # rows that end apart end together in the ring, as long as the longest document
        room = int(places.end.max()) if room is None else room
        return seen.kept(room, places, self.writes) if room or self.room is None else None

    @property
    def room(self) -> int | None:
        """Tokens the ring holds; None where softmax has no window and the ring grows with the text."""
        waiting = 0 if self.update_rule is None else self.schedule.waits
        if self.positions is None:
            return waiting
        return None if self.schedule.span is None else max(self.schedule.span, waiting)


def check_pair(rule: Any, feature_map: Any, rule_name: str, map_name: str) -> None:
    """A rule that relies on a promise needs a feature map that makes it."""
    if rule.needs_unit_keys and not feature_map.unit:
        raise ConfigError(
            f"feature_map: update_rule {rule_name!r} diverges unless keys are unit vectors, and "
            f"feature_map {map_name!r} does not make them so. Use silu_l2, or leave the choice to the rule."
        )
    if rule.needs_positive_features and not feature_map.positive:
        raise ConfigError(
            f"feature_map: the normaliser of update_rule {rule_name!r} may vanish where features are negative, "
            f"as those of feature_map {map_name!r} may be. Use elu_plus_one, or normaliser: none."
        )
