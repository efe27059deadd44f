"""Interface of an update rule: how a token updates the fast weights.

A rule computes the gates of a token from the token stream, once, when the token arrives, and scans (q, k, v, gates)
through its memory.

- Linear in the state (almost all rules are): subclass `LinearRule` and implement `gates`.  Chunk-parallel training,
  streaming, delay, hold and several writes per token are inherited.  Implement `scan_inputs` too if the rule has a
  lookup key of its own or changes queries, keys or values.
- Not linear: subclass `StepRule` and implement `gates` and `step`.  The rest is inherited; the scan is step by step.
- With its own parallel form: override `scan`; the conformance checks compare it with `reference`.  `UpdateRule.scan`
  has the signature, and docs/add_parallel_scan.md a worked example.  A `LinearRule` whose scan computes other matrix
  products than the base class overrides `count_flops` too.

Every parameter of a rule must be used: the conformance checks reject a parameter without a gradient.  Initial values
other than N(0, std^2) are set in `reset_parameters`, which runs after the default initialization.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.dispatch import (
    SCAN_BACKENDS,
    BackendChoice,
    OpSpec,
    dtype_name,
    linear_scan,
    scan_limitation,
    select_backend,
)
from hqlt_lab.ops.flops import (
    Flops,
    channel_gate_scan_flops,
    measure_flops,
    product_flops,
    scan_backward_flops,
    scan_flops,
)
from hqlt_lab.ops.gates import Gates, GateTuple, ScanContext, linear_step, map_gates
from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE
from hqlt_lab.ops.scan.recurrent import read_state, recurrent_scan


class UpdateRule(nn.Module):
    """The interface that the layer uses."""

    feature_map: str = "silu_l2"
    """The feature map used if the experiment does not set one."""
    needs_unit_keys: bool = False
    """Whether the memory may diverge if keys are longer than unit vectors."""
    needs_nonnegative_features: bool = False
    """Whether the rule requires products of features of at least 0, or its normalizer could vanish."""
    has_key_channels: bool = False
    """Whether gates or lookup keys have the channels of a projected key, so that no feature map may widen it."""
    scales_queries: bool = True
    """Whether queries are multiplied by K^-0.5 after the feature map."""
    writes: int = 1
    """Key-value pairs that the layer projects per token.  `LinearRule.scan_inputs` may make more writes of them."""
    gate_shape: str = "[B, H, T * writes, ...]"
    """The shape of a gate, for error messages."""
    scan_is_bitwise_causal: bool = True
    """Whether no bit of a read depends on later tokens.  A scan that mixes them in rounding, as an FFT does, declares
    False; the conformance checks then allow rounding errors."""
    backend: str = "auto"
    """The backend of a linear scan, see `ops.dispatch`; set by the model."""

    def gates(self, x: Tensor) -> GateTuple:
        """Return a named tuple of [B, H, T * writes, ...] tensors (or None) from the token stream x [B, T, width].

        The dimensions after the third are the rule's own, such as one gate per key channel.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `gates`.")

    def find_gate_error(self, gates: Any, rows: int, heads: int, tokens: int) -> str:
        """Return a sentence about what is wrong with the value that `gates` returned, or an empty string."""
        if not hasattr(gates, "_fields"):
            return (
                f"gates() returns a {type(gates).__name__}, but a named tuple of gates is needed: "
                "Gates(log_keep=..., erase=..., write=...), from hqlt_lab.ops.gates."
            )
        for name, gate in zip(gates._fields, gates, strict=True):
            if gate is not None and not isinstance(gate, Tensor):
                return f"{name} is a {type(gate).__name__}, but a tensor {self.gate_shape} is needed, or None."
            if gate is not None and gate.shape[:3] != (rows, heads, tokens * self.writes):
                sizes = f"{rows} rows, {heads} heads, {tokens} tokens of {self.writes} writes"
                return f"{name} is {list(gate.shape)} for {sizes}, but {self.gate_shape} is needed."
            if gate is not None and not gate.is_floating_point():
                return f"{name} is {dtype_name(gate.dtype)}, but a floating-point tensor is needed."
            if gate is not None and gate.isnan().any():
                return f"{name} is NaN for some tokens."
        return ""

    def find_channel_error(self, gates: Any, key_dim: int, value_dim: int) -> str:
        """Return a sentence about channels of gates that do not fit the channels of keys and values, or ""."""
        return ""

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        """Scan all tokens.  Return the reads [B, H, T, V] and the state after the last token, at least float32.

        q        [B, H, T, K]             queries after the feature map
        k, v     [B, H, T * writes, K|V]  pairs to write; those of token t are t * writes to (t + 1) * writes - 1
        gates    the named tuple of `gates`, each field [B, H, T * writes, ...]
        state    [B, H, K, V]             before the first token (None: empty); it must not be modified
        context  hold        None: a token reads after its writes; n: it reads the state from before its block of n
                 valid_mask  [B or 1, T], False for tokens that do not change the state (None: all write)
                 doc_start   [B, T], True for tokens before which the state is set to 0 (None: never)
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `scan`.")

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        """Scan step by step: the reference with which `scan` must agree."""
        return recurrent_scan(q, k, v, gates, state, context, step=self.step, read=self.read)

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Any) -> Tensor:
        """Return the state after one write.  state [B, H, K, V], k [B, H, K], v [B, H, V], gates [B, H, ...]."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `step`.")

    def value_channels(self, values: int) -> int:
        """Return the channels stored per feature for values of `values` channels, such as one more for a normalizer.

        The declared state size depends on it.
        """
        return values

    def read(self, state: Tensor, q: Tensor) -> Tensor:
        """Read the memory: [B, H, V] for q [B, H, K]."""
        return read_state(state, q)

    def backend_choice(self, gates: Any, spec: OpSpec) -> BackendChoice:
        """Return the backend that `scan` uses for such an operation, to be recorded with a run."""
        return BackendChoice("its own scan", "defined by the rule")

    def count_flops(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> Flops:
        """Return the FLOPs of `scan` on tensors of these shapes; their values do not matter."""
        return product_flops(measure_flops(lambda: self.scan(q, k, v, gates, state, context)))


class LinearInputs(NamedTuple):
    """Inputs of a linear scan: as the layer gives them, or as the rule changed them."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, T * n, K], with n writes per token
    v: Tensor  # [B, H, T * n, V], or [B, H, T, V] if all but the last write of each token have the value 0
    gates: Gates  # of [B, H, T * n, ...]


class LinearRule(UpdateRule):
    """A rule that is linear in its state.  It implements `gates`, which returns `ops.gates.Gates`.

    A gate is one number per head and write [B, H, T * writes], or has channels [B, H, T * writes, channels].

    A rule that needs the keys, values or queries to compute the scan also implements `scan_inputs`: for lookup keys
    of its own, keys that depend on a gate, or more writes than projected pairs.  Its `gates` may then return any named
    tuple, and `scan_inputs` makes `Gates` of it.
    """

    gate_shape = "[B, H, T * writes] or [B, H, T * writes, channels]"

    def scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: Any) -> LinearInputs:
        """Return the queries, keys, values and gates of the scan.

        q [B, H, T, K], k and v [B, H, T * writes, K|V] are those of `scan`, after the feature map.  Keys, values and
        gates of the result belong to one step of the scan; with a delay, k and v are those of the token that is written
        at the step.  Padding and documents are handled by the scan.
        """
        return LinearInputs(q, k, v, gates)

    def checked_scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: Any) -> LinearInputs:
        """Return `scan_inputs`.  Raise ConfigError if a linear scan cannot use them."""
        inputs = self.scan_inputs(q, k, v, gates)
        if gate_error := find_linear_input_error(inputs, self.has_key_channels):
            raise ConfigError.at("update_rule", "invalid_gates", f"{type(self).__name__}: {gate_error}")
        return inputs

    def find_gate_error(self, gates: Any, rows: int, heads: int, tokens: int) -> str:
        gate_error = super().find_gate_error(gates, rows, heads, tokens)
        if gate_error or type(self).scan_inputs is not LinearRule.scan_inputs:
            return gate_error
        return find_gates_error(gates)

    def find_channel_error(self, gates: Any, key_dim: int, value_dim: int) -> str:
        if type(self).scan is not LinearRule.scan:  # it may change keys, values and gates first
            return ""
        return find_linear_input_error(self.example_scan_inputs(gates, key_dim, value_dim), self.has_key_channels)

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Any) -> Tensor:
        return linear_step(state, k, v, gates)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        inputs = self.checked_scan_inputs(q, k, v, gates)
        return linear_scan(*inputs, state, context, backend=self.backend)

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        return recurrent_scan(*self.scan_inputs(q, k, v, gates), state, context, read=self.read)

    def example_scan_inputs(self, gates: Any, key_dim: int, value_dim: int) -> LinearInputs:
        """Return scan inputs with zero queries, keys and values for gates of few tokens; only shapes matter."""
        present_gates = [gate for gate in gates if gate is not None]
        tokens = max(present_gates[0].shape[2] // self.writes, 1) if present_gates else 1
        like = present_gates[0] if present_gates else torch.zeros(1, 1, tokens)
        rows, pairs = like.shape[:2], tokens * self.writes
        q, k = like.new_zeros(*rows, tokens, key_dim), like.new_zeros(*rows, pairs, key_dim)
        return self.scan_inputs(q, k, like.new_zeros(*rows, pairs, value_dim), gates)

    def backend_choice(self, gates: Any, spec: OpSpec) -> BackendChoice:
        has_lookup = self.example_scan_inputs(gates, spec.key_dim, spec.value_dim).gates.has_lookup
        spec = spec._replace(limitation=scan_limitation(), has_lookup=has_lookup)
        return select_backend(SCAN_BACKENDS, self.backend, spec)

    def count_flops(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> Flops:
        tokens = q.shape[2]
        if tokens == 1:  # scanned step by step
            return super().count_flops(q, k, v, gates, state, context)
        q, k, v, gates = self.scan_inputs(q, k, v, gates)
        rows, key_dim, value_dim = q.shape[0] * q.shape[1], q.shape[3], v.shape[3]
        chunk_layout = ChunkLayout(tokens, k.shape[2] // tokens, context.hold, CHUNK_SIZE)
        if not gates.has_scalar_form:
            lookup = gates.lookup_key(k)
            stride = 0 if lookup is None else k.shape[2] // lookup.shape[2]
            return channel_gate_scan_flops(chunk_layout, rows, key_dim, value_dim, stride)
        sizes = (chunk_layout, rows, key_dim, value_dim, gates.erase is not None, state is None)
        decays = gates.log_keep is not None
        return Flops(scan_flops(*sizes), scan_backward_flops(*sizes, decays=decays, has_last_state_grad=False))


def find_gates_error(gates: Any) -> str:
    """Return a sentence about gates that a linear scan cannot use, or an empty string."""
    if getattr(gates, "_fields", ()) != Gates._fields:
        return (
            f"gates() returns a {type(gates).__name__}, but a linear rule needs Gates(log_keep, erase, write, ...) "
            "from hqlt_lab.ops.gates. Implement scan_inputs to convert other gates, or use StepRule."
        )
    for name, gate in zip(Gates._fields, gates, strict=True):
        if gate is not None and gate.dim() not in (3, 4):
            return (
                f"{name} is {list(gate.shape)}, but a linear rule needs {LinearRule.gate_shape}. "
                "Use StepRule for gates with more dimensions."
            )
    if gates.lookup is not None and gates.early_lookup is not None:
        return "lookup and early_lookup are both given, but a step looks up either after its decay or before it."
    return ""


def find_linear_input_error(inputs: Any, has_key_channels: bool) -> str:
    """Return a sentence about scan inputs that a linear scan cannot use, or an empty string.

    `has_key_channels`: whether the rule declares that its gates have the channels of a key.
    """
    if not isinstance(inputs, LinearInputs):
        return f"scan_inputs() returns a {type(inputs).__name__}, but LinearInputs(q, k, v, gates) is needed."
    q, k, v, gates = inputs
    if error := find_gates_error(gates) or find_qkv_error(q, k, v):
        return error
    lookup_key = k if gates.own_lookup is None else gates.own_lookup
    for name, gate in zip(Gates._fields, gates, strict=True):
        if gate is None:
            continue
        is_key = name in ("lookup", "early_lookup")
        key_name, key = ("lookup keys", lookup_key) if name == "erase" else ("keys", k)
        lengths = (k.shape[2], q.shape[2]) if is_key else (key.shape[2],)
        if gate.shape[:2] != k.shape[:2] or gate.shape[2] not in lengths:
            return f"{name} is {list(gate.shape)}, but the {key_name} are {list(key.shape)}."
        if is_key and gate.dim() != 4:
            return f"{name} is {list(gate.shape)}, but a key needs channels: {list(k.shape)}."
        like_name, like = ("values", v) if name == "write" else ("keys", k)
        if gate.dim() == 4 and gate.shape[3] != like.shape[3]:
            error = f"{name} has {gate.shape[3]} channels, but the {like_name} have {like.shape[3]}."
            if like is k and not has_key_channels:
                error += " A rule with gates or lookup keys per key channel declares has_key_channels = True."
            return error
    return ""


def find_qkv_error(q: Tensor, k: Tensor, v: Tensor) -> str:
    """Return a sentence about queries, keys and values whose shapes do not fit together, or an empty string."""
    if q.dim() != 4 or q.shape[:2] != k.shape[:2] or k.shape[2] % max(q.shape[2], 1):
        return f"the keys are {list(k.shape)}, but the queries are {list(q.shape)}: every token needs as many keys."
    if q.shape[3] != k.shape[3]:
        return f"the queries have {q.shape[3]} channels, but the keys have {k.shape[3]}."
    if v.shape[:2] != k.shape[:2] or v.shape[2] not in (k.shape[2], q.shape[2]):
        return f"v is {list(v.shape)}, but the keys are {list(k.shape)}."
    return ""


class StepRule(UpdateRule):
    """A rule that implements `step`, linear or not, and is scanned step by step unless it overrides `scan`.

    Gates may have any dimensions after [B, H, T * writes]; `step` gets those of one write, [B, H, ...].
    """

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        return self.reference(q, k, v, gates, state, context)

    def backend_choice(self, gates: Any, spec: OpSpec) -> BackendChoice:
        if type(self).scan is not StepRule.scan:
            return super().backend_choice(gates, spec)
        return BackendChoice("recurrent", "the rule is not linear in its state")

    def count_flops(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> Flops:
        if type(self).scan is not StepRule.scan:
            return super().count_flops(q, k, v, gates, state, context)
        tokens, writes = q.shape[2], k.shape[2] // q.shape[2]  # all tokens cost the same
        first_gates = map_gates(lambda gate: gate[:, :, :writes], gates)
        first_token = (q[:, :, :1], k[:, :, :writes], v[:, :, :writes], first_gates)
        return product_flops(tokens * super().count_flops(*first_token, state, context).forward)
