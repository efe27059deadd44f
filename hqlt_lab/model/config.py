"""Settings of a model, with the keys of the YAML file.  This module does not import torch."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from hqlt_lab.errors import ConfigError, ConfigIssue, IssueError, format_names
from hqlt_lab.model.layer_pattern import (
    expand_all_layers,
    expand_layers,
    find_form_issues,
    find_layer_issues,
    iter_layer_values,
    layer_value,
)
from hqlt_lab.model.memory_size_config import MAX_HEAD_DIM, MEMORY_SIZE_CONFIGS, MemorySize, equal_size
from hqlt_lab.registry import check_maximums, check_minimums, parse_settings, parse_spec
from hqlt_lab.registry.settings_parsing import parse_nested, raise_if_invalid

PerLayer = Any  # a component or an MLP, or a list or a pattern of them over the layers: see `layer_pattern`
COMPONENT_KINDS = ("update_rule", "attention", "timing", "mixer", "positions", "feature_map")
MLP_KINDS = ("swiglu", "gelu", "identity", "none")
LAYER_KINDS = ("memory", "gated_conv")
KINDS_BY_SETTING = {"mlp": MLP_KINDS, "layer_kind": LAYER_KINDS}
PER_LAYER_SETTINGS = (*COMPONENT_KINDS, *KINDS_BY_SETTING)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Settings of a model.  A component is its name or {name: ..., option: ...}; a list repeats over the layers.

    Patterns over the layers, such as {repeat: [[fw_only, 3], [kv_only, 1]]}, are stored as lists.
    """

    vocabulary: int | None = None
    """Number of distinct tokens; null: the model maps vectors to vectors."""
    width: int = 128
    """Channels of the residual stream."""
    heads: int = 4
    """Heads of both memories, and of the mixer that combines them."""
    head_dim: int | None = None
    """Channels of a query, key or value per head; null: width / heads."""
    fw: dict[str, Any] = field(default_factory=dict)
    """Sizes of the fast weights that differ from the shared ones: heads, key_dim, value_dim."""
    kv: dict[str, Any] = field(default_factory=dict)
    """Sizes of softmax attention that differ from the shared ones: heads, groups, key_dim, value_dim."""
    projections: Literal["shared", "separate"] = "shared"
    """Whether both memories get the same queries, keys and values, or each has projections of its own."""
    layers: int = 2
    """Blocks."""
    layer_kind: PerLayer = "memory"
    """memory, or gated_conv: a gated convolution instead of the memories; a list of them repeats over the layers."""
    update_rule: PerLayer = "delta"
    """How a token updates the fast weights."""
    attention: PerLayer = "softmax"
    """How softmax reads the tokens of its window."""
    timing: PerLayer = "synchronous"
    """When a token enters which memory."""
    mixer: PerLayer = "vector"
    """How the outputs of the two memories are combined."""
    positions: PerLayer = "rope"
    """How softmax attention encodes token positions."""
    feature_map: PerLayer = None
    """Map applied to queries and keys before the fast weights; null: the default of the update rule."""
    value_activation: Literal["silu", "none"] = "silu"
    """Applied to the values that both memories store."""
    head_norm: bool = True
    """RMSNorm per head on the output of the mixer."""
    output_gate: bool = False
    """SiLU gate on the output of the mixer."""
    meta_tokens: int = 0
    """Learned vectors in front of every document, which both memories read and no metric counts."""
    short_conv: int = 0
    """Taps of a causal depthwise convolution on queries, keys and values; 0: none."""
    norm: Literal["rms", "layer"] = "rms"
    """Normalization before each sub-layer."""
    norm_eps: float = 1e-6
    """Added to the mean square in every normalization."""
    mlp: PerLayer = "swiglu"
    """The feed-forward sub-layer: swiglu, gelu, identity or none, or a list of them that repeats over the layers."""
    mlp_width: int | None = None
    """Inner width of the MLP; null: swiglu 8/3 of the width rounded up to a multiple of 256, gelu 4 times the width."""
    bias: bool = False
    """Biases on the linear maps of memory and MLP."""
    dropout: float = 0.0
    """Dropout rate in training."""
    dropout_on: Literal["all", "embedding"] = "all"
    """Where dropout applies: to the embedded input and the output of each sub-layer, or to the embedded input only."""
    tie_embeddings: bool = False
    """Use one matrix for the embedding and the head."""
    init_std: float = 0.02
    """Standard deviation of the initial weights."""
    residual_init: Literal["rescaled", "rescaled_normal", "normal"] = "rescaled"
    """Initial maps into the residual stream: U(+-1/sqrt(fan in)) or N(0, std^2), / sqrt(2 layers); or as all others."""

    def __post_init__(self) -> None:
        size_issues = self._size_issues()
        form_issues = [issue for name in PER_LAYER_SETTINGS for issue in find_form_issues(name, getattr(self, name))]
        memory_issues = self._normalize_memory_sizes()
        independent_issues = [
            *size_issues,
            *form_issues,
            *memory_issues,
            *self._component_issues(),
            *self._kind_issues(),
        ]
        raise_if_invalid(independent_issues, () if size_issues or form_issues else self._consistency_issues())
        for name in PER_LAYER_SETTINGS:
            object.__setattr__(self, name, expand_layers(getattr(self, name), self.layers))

    def _size_issues(self) -> list[ConfigIssue]:
        minimums = {"width": 1, "heads": 1, "layers": 1, "vocabulary": 1, "mlp_width": 1, "short_conv": 0}
        minimums |= {"meta_tokens": 0, "head_dim": 1}
        maximums = {"width": 2**20, "head_dim": MAX_HEAD_DIM, "layers": 1000, "mlp_width": 2**22, "short_conv": 2**10}
        maximums |= {"meta_tokens": 2**16}
        issues = check_minimums(self, minimums) + check_maximums(self, maximums)
        if not 0 <= self.dropout < 1:
            message = f"a fraction from 0 to less than 1 is needed, got {self.dropout}."
            issues.append(ConfigIssue("dropout", "out_of_range", message))
        return issues

    def _normalize_memory_sizes(self) -> list[ConfigIssue]:
        """Parse `fw` and `kv` and store only the sizes that are set.  Return their issues."""
        issues: list[ConfigIssue] = []
        for name, config_type in MEMORY_SIZE_CONFIGS.items():
            parsed, nested_issues = parse_nested(config_type, getattr(self, name), name)
            issues += nested_issues
            if parsed is not None:
                sizes = {key: value for key, value in asdict(parsed).items() if value is not None}
                object.__setattr__(self, name, sizes)
        return issues

    def _consistency_issues(self) -> list[ConfigIssue]:
        issues = []
        if self.head_dim is None and self.width % self.heads:
            divisors = format_divisors(self.width)
            message = f"{self.width} channels do not divide over {self.heads} heads."
            issues.append(
                ConfigIssue("heads", "width_not_divisible", message, f"Use one of {divisors}, or set head_dim.")
            )
        if self.tie_embeddings and self.vocabulary is None:
            message = "without a vocabulary there are no embeddings to tie."
            issues.append(ConfigIssue("tie_embeddings", "no_embeddings", message))
        for name in PER_LAYER_SETTINGS:
            issues += find_layer_issues(name, getattr(self, name), self.layers)
        if not issues and "memory" not in expand_all_layers(self.layer_kind, self.layers):
            message = "at least one layer needs memories."
            issues.append(ConfigIssue("layer_kind", "model_without_memory", message, "Use [gated_conv, memory]."))
        return issues

    def _component_issues(self) -> list[ConfigIssue]:
        issues: list[ConfigIssue] = []
        for kind in COMPONENT_KINDS:
            for path, spec in iter_layer_values(getattr(self, kind)):
                if spec is not None or kind != "feature_map":
                    try:
                        parse_spec(kind, spec, f"{kind}{path}")
                    except IssueError as error:
                        issues += error.issues
        return issues

    def _kind_issues(self) -> list[ConfigIssue]:
        return [
            ConfigIssue(f"{name}{path}", "setting_of_wrong_type", f"{' | '.join(kinds)} is needed, got {kind!r}.")
            for name, kinds in KINDS_BY_SETTING.items()
            for path, kind in iter_layer_values(getattr(self, name))
            if kind not in kinds
        ]

    @property
    def shared_size(self) -> MemorySize:
        """The size of a memory without a section of its own, and of the outputs that the mixer combines."""
        return equal_size(self.heads, self.width // self.heads if self.head_dim is None else self.head_dim)

    def shares_projections(self, reads: Collection[str], own_heads: Mapping[str, int] | None = None) -> bool:
        """Return whether both memories of a layer get the same queries, keys and values; see `memory_sizes`."""
        return self.projections == "shared" and len(reads) == 2 and own_heads is None

    def memory_sizes(self, reads: Collection[str], own_heads: Mapping[str, int] | None = None) -> dict[str, MemorySize]:
        """Return the sizes of the memories of a layer, for those that its mixer reads.

        `own_heads` is the number of heads that each memory answers alone; None: both memories answer all heads.  Raise
        ConfigError if the sizes are impossible.
        """
        sizes = {name: self._memory_size(name, own_heads) for name in MEMORY_SIZE_CONFIGS if name in reads}
        if self.shares_projections(reads, own_heads):
            fw, kv = sizes["fw"], sizes["kv"]
            sizes["fw"] = replace(fw, groups=kv.groups)
            if sizes["fw"] != kv:
                raise ConfigError(sizes_differ_issue(fw, kv))
        return sizes

    def _memory_size(self, name: str, own_heads: Mapping[str, int] | None) -> MemorySize:
        section = getattr(self, name)
        shared = self.shared_size
        heads = section.get("heads", shared.heads)
        if own_heads is not None and section.get("heads", own_heads[name]) != own_heads[name]:
            message = f"the mixer of a layer gives this memory {own_heads[name]} of {self.heads} heads, not {heads}."
            raise ConfigError.at(f"{name}.heads", "heads_set_by_mixer", message, "Leave it out.")
        heads = heads if own_heads is None else own_heads[name]
        groups = section.get("groups", heads)
        if heads % groups:
            message = f"{heads} heads do not divide into {groups} groups."
            raise ConfigError.at(
                f"{name}.groups", "groups_not_divisible", message, f"Use one of {format_divisors(heads)}."
            )
        key_dim, value_dim = section.get("key_dim", shared.key_dim), section.get("value_dim", shared.value_dim)
        return MemorySize(heads, groups, key_dim, value_dim)

    def mlp_kind(self, layer: int) -> str:
        """Return the kind of MLP of that layer: swiglu, gelu, identity or none."""
        return str(layer_value(self.mlp, layer))

    def has_memory(self, layer: int) -> bool:
        """Return whether that layer has memories; otherwise it is a gated convolution."""
        return str(layer_value(self.layer_kind, layer)) == "memory"

    def component_spec(self, kind: str, layer: int) -> Any:
        """Return the component of that kind in that layer, as written in the settings."""
        return layer_value(getattr(self, kind), layer)


def format_divisors(number: int) -> str:
    """Return all divisors of a number as text."""
    return format_names(str(n) for n in range(1, number + 1) if number % n == 0)


def sizes_differ_issue(fw: MemorySize, kv: MemorySize) -> ConfigIssue:
    """Return the issue of memories of different sizes that have the same queries, keys and values."""
    names = [name for name in ("heads", "key_dim", "value_dim") if getattr(fw, name) != getattr(kv, name)]
    differences = format_names(f"{name} {getattr(fw, name)} and {getattr(kv, name)}" for name in names)
    equal = ", ".join(f"fw.{name}: {getattr(kv, name)}" for name in names)
    return ConfigIssue(
        "projections",
        "memories_differ_in_size",
        f"fast weights and softmax of a layer have different sizes ({differences}), so that they cannot have the same "
        "queries, keys and values.",
        f"Set projections: separate, or {equal}.",
        other_paths=("fw", "kv"),
    )


@dataclass(frozen=True, kw_only=True)
class OpsConfig:
    """Backends that compute the two memories; they affect speed, not results.  See `hqlt_lab.ops.dispatch`."""

    scan: Literal["auto", "fla", "torch", "recurrent"] = "auto"
    """Backend of the fast weights; auto: the fastest that supports the operation."""
    attention: Literal["auto", "flash_attn", "sdpa", "flex", "blocks", "dense"] = "auto"
    """Backend of softmax attention; auto: the fastest that supports the operation."""


def mlp_inner_width(width: int, mlp: str, mlp_width: int | None) -> int:
    """Return the inner width of the MLP: the configured one, or the default for its kind."""
    if mlp_width is not None:
        return mlp_width
    return -(-(width * 8 // 3) // 256) * 256 if mlp == "swiglu" else 4 * width


def model_config(settings: Mapping[str, Any]) -> ModelConfig:
    """Make a ModelConfig from a mapping.  Raise ConfigError with one issue per invalid setting."""
    return parse_settings(ModelConfig, settings)
