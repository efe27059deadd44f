"""How a target is called: the shape of its input, and the names of the arguments for masks, caches and documents.

    hqlt check module my_package.layers:MyLayer --call width=64 --call mask=padding --call tensor.g=BTH:log_decay

Names that are not given are detected from the signature. An empty name means that the target has no such argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from hqlt_lab.errors import ConfigError, did_you_mean, format_names

TensorValues = Literal["normal", "unit", "log_decay", "strength"]
TENSOR_VALUES: tuple[TensorValues, ...] = ("normal", "unit", "log_decay", "strength")
AUTO = "auto"


@dataclass(frozen=True)
class TensorSpec:
    """Shape and values of an argument of a function, such as BTHK:unit.

    The letters are B rows, T tokens, H heads, K key channels and V value channels.  The values are normal noise, unit
    vectors, log_decay (negative) or strength (between 0 and 1).
    """

    axes: str
    values: TensorValues = "normal"

    @classmethod
    def parse(cls, text: str) -> "TensorSpec":
        axes, _, values = text.partition(":")
        if set(axes) - set("BTHKV") or not {"B", "T"} <= set(axes) or len(set(axes)) < len(axes):
            message = f"{axes!r} is not a shape of the letters B, T, H, K and V, with B and T."
            raise ConfigError.at("tensor", "invalid_tensor_shape", message, "Examples: BTHK, BHTK:unit, BTH:log_decay.")
        if (values or "normal") not in TENSOR_VALUES:
            message = f"there are no values {values!r}."
            raise ConfigError.at("tensor", "unknown_tensor_values", message, f"Values: {format_names(TENSOR_VALUES)}.")
        return cls(axes, values or "normal")  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """How a target is called."""

    input: str = AUTO
    """What a module reads: vectors [B, T, width] or tokens [B, T]. Default: tokens if its first argument is called
    input_ids, tokens or idx."""
    width: int | None = None
    """Channels of the vectors. Default: the setting width, d_model, hidden_size, dim, embed_dim or n_embd."""
    vocabulary: int | None = None
    """Number of tokens. Default: the setting vocab_size, vocabulary or num_tokens."""
    mask: str = AUTO
    """Argument for the mask [B, T], True at tokens that are not padding."""
    cache: str = AUTO
    """Argument for the cache, which the module returns after its output."""
    documents: str = AUTO
    """Argument for packed documents: cu_seqlens (their boundaries), seq_idx (the number of a token's document) or
    doc_start (True at the first token of a document)."""
    positions: bool = True
    """Whether a language model gets the positions of the tokens (position_ids), as from transformers' `generate`."""
    new_cache: str | Callable[[], Any] | None = None
    """An empty cache, if None does not stand for it: package.module:Class, or a function without arguments."""
    cache_grows: bool = False
    """Whether the cache grows with the tokens, as that of softmax attention does."""
    state_bytes: int | None = None
    """Declared bytes of the state of one row in float32. Default: the attribute or method `state_bytes` of a module."""
    chunk: int = 64
    """Tokens per chunk of the implementation. The checks use several chunks, and lengths around their borders."""
    multiple_of: int = 1
    """The implementation needs lengths that are a multiple of this number."""
    bitwise: bool = False
    """Fail if later tokens change a bit of an earlier output, even if the change is in the order of rounding."""
    tensors: Mapping[str, TensorSpec] = field(default_factory=dict)
    """Shape and values of the arguments of a function. Default: by their names, see function_adapter."""

    def __post_init__(self) -> None:
        if self.input not in (AUTO, "vectors", "tokens"):
            message = f"a module reads vectors or tokens, not {self.input!r}."
            raise ConfigError.at("input", "unknown_module_input", message)
        for name in ("chunk", "multiple_of"):
            if getattr(self, name) < 1:
                raise ConfigError.at(name, "length_below_one", f"at least 1 is needed, got {getattr(self, name)}.")

    def round_length(self, tokens: int) -> int:
        """Return the next length that the implementation accepts."""
        return -(-tokens // self.multiple_of) * self.multiple_of


def parse_call_options(given: Mapping[str, Any]) -> CallOptions:
    """Return call options from names and values; `tensor.NAME` is the shape of an argument of a function."""
    options, tensors = CallOptions(), {}
    names = [option.name for option in fields(CallOptions) if option.name != "tensors"]
    for name, value in given.items():
        if name.startswith("tensor."):
            tensors[name.removeprefix("tensor.")] = TensorSpec.parse(str(value))
        elif name not in names:
            hint = f"{did_you_mean(name, names)} Options: {format_names([*names, 'tensor.NAME'])}.".strip()
            raise ConfigError.at("--call", "unknown_call_option", f"there is no option {name!r}.", hint)
        else:
            change: dict[str, Any] = {name: "" if value is None else value}
            options = replace(options, **change)
    return replace(options, tensors=tensors)
