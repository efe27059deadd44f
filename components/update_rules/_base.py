"""Interface of an update rule: how a token updates the fast weights.

A rule computes the gates of a token from the token stream, once, when the token arrives, and scans (q, k, v, gates)
through its memory.

- Linear in the state (almost all rules are): subclass `LinearRule` and implement `gates`.  Chunk-parallel training,
  streaming, delay, hold and several writes per token are inherited.
- Not linear: subclass `StepRule` and implement `gates` and `step`.  The rest is inherited; the scan is step by step.
- With its own parallel form: override `scan`; the conformance kit compares it with `reference`.  `UpdateRule.scan` has
  the signature, and docs/add_parallel_scan.md a worked example.  A `LinearRule` whose scan computes other matrix
  products than the base class overrides `count_flops` too.

Every parameter of a rule must be used: a parameter without a gradient fails the conformance kit.  Initial values other
than N(0, std^2) are set in `reset_parameters`, which runs after the default initialization.
"""

from typing import Any

from torch import Tensor, nn

from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.dispatch import SCAN_BACKENDS, BackendChoice, OpSpec, kernel_limitation, linear_scan, select_backend
from hqlt_lab.ops.flops import Flops, measure_flops, product_flops, scan_backward_flops, scan_flops
from hqlt_lab.ops.gates import Gates, GateTuple, ScanContext, linear_step, map_gates
from hqlt_lab.ops.scan.chunk_boundaries import ChunkLayout
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE
from hqlt_lab.ops.scan.recurrent import read_state, recurrent_scan


class UpdateRule(nn.Module):
    """The interface that the layer uses."""

    feature_map: str = "silu_l2"
    """The feature map used if the experiment does not set one."""
    needs_unit_keys: bool = False
    """Whether the memory may diverge if keys are not unit vectors."""
    needs_nonnegative_features: bool = False
    """Whether the rule requires features of at least 0, because its normalizer could vanish otherwise."""
    writes: int = 1
    """Key-value pairs written per token; the layer projects as many keys and values."""
    gate_shape: str = "[B, H, T * writes, ...]"
    """The shape of a gate, for error messages."""
    backend: str = "auto"
    """The backend of a linear scan, see `ops.dispatch`; set by the model."""

    def gates(self, x: Tensor) -> GateTuple:
        """Return a named tuple of [B, H, T * writes, ...] tensors (or None) from the token stream x [B, T, width].

        The dimensions after the third are the rule's own, such as one gate per key channel.  A linear rule has none.
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
            if gate is not None and gate.isnan().any():
                return f"{name} is NaN for some tokens."
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


class LinearRule(UpdateRule):
    """A rule with keep, erase and write gates: it only implements `gates`, which returns `ops.gates.Gates`.

    Each gate is one number per head and write, [B, H, T * writes].  A rule whose gates have further dimensions, such as
    one decay per key channel, is a `StepRule`.
    """

    gate_shape = "[B, H, T * writes]"

    def find_gate_error(self, gates: Any, rows: int, heads: int, tokens: int) -> str:
        return super().find_gate_error(gates, rows, heads, tokens) or self.find_linear_gate_error(gates)

    def find_linear_gate_error(self, gates: Any) -> str:
        """Return a sentence about gates that a linear scan cannot use, or an empty string."""
        if getattr(gates, "_fields", ()) != Gates._fields:
            return (
                f"gates() returns a {type(gates).__name__}, but a linear rule needs Gates(log_keep, erase, write) "
                "from hqlt_lab.ops.gates. Use StepRule for other gates."
            )
        for name, gate in zip(Gates._fields, gates, strict=True):
            if gate is not None and gate.dim() != 3:
                return (
                    f"{name} is {list(gate.shape)}, but a linear rule needs one number per head and write, "
                    f"{self.gate_shape}. Use StepRule for gates with more dimensions."
                )
        return ""

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Any) -> Tensor:
        return linear_step(state, k, v, gates)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        if gate_error := self.find_linear_gate_error(gates):
            raise ConfigError.at("update_rule", "invalid_gates", f"{type(self).__name__}: {gate_error}")
        return linear_scan(q, k, v, gates, state, context, backend=self.backend)

    def backend_choice(self, gates: Any, spec: OpSpec) -> BackendChoice:
        return select_backend(SCAN_BACKENDS, self.backend, spec._replace(limitation=kernel_limitation(gates)))

    def count_flops(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> Flops:
        rows, heads, tokens, key_dim = q.shape
        if tokens == 1:  # scanned step by step
            return super().count_flops(q, k, v, gates, state, context)
        chunk_layout = ChunkLayout(tokens, k.shape[2] // tokens, context.hold, CHUNK_SIZE)
        sizes = (chunk_layout, rows * heads, key_dim, v.shape[3], gates.erase is not None, state is None)
        decays = gates.log_keep is not None
        return Flops(scan_flops(*sizes), scan_backward_flops(*sizes, decays=decays, has_last_state_grad=False))


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
