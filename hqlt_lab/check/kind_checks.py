"""Checks of one kind of component: update rules, attention, timings, mixers, positions and feature maps."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from hqlt_lab.check.component_under_test import (
    MAX_MASK_LENGTH,
    SMALL_WINDOW,
    ComponentCase,
    assert_close,
    fixed_noise,
)
from hqlt_lab.check.conformance_report import CheckFailed, CheckResult, ComponentUnusable
from hqlt_lab.components.attention._base import Attention, AttentionInputs
from hqlt_lab.components.mixers._base import Mixer, has_contributions, has_weights
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext, fill_first_lookups, map_gates
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.chunked import CHUNK_SIZE
from hqlt_lab.registry import build

AttentionBackend = Literal["auto", "flash_attn", "sdpa", "flex", "blocks", "dense"]
LONG_DOCUMENT = 1500  # tokens: more than share a reference of the sums of forget gates


def scan_equals_the_reference(case: ComponentCase) -> None:
    """`scan` equals the step-by-step reference: reads, state and all gradients, from any state, at odd lengths."""
    scan_cases = (  # length, hold, padded, packed
        (1, None, False, False),
        (1, None, True, True),
        (7, 3, True, False),
        (9, 4, False, True),
        (2 * CHUNK_SIZE + 3, None, True, False),
        (2 * CHUNK_SIZE + 3, None, True, True),
        (2 * CHUNK_SIZE + 3, 3, True, True),
        (2 * CHUNK_SIZE + 3, CHUNK_SIZE + 6, True, False),
    )
    for length, hold, padded, packed in scan_cases:
        rule = build("update_rule", case.spec, width=8, heads=2).double()
        inputs = example_inputs(rule, length)
        context = ScanContext(hold, random_valid_mask(length, padded), random_doc_starts(length, hold, packed))
        actual, expected = (run_scan(scan, inputs, context) for scan in (rule.scan, rule.reference))
        names = ("reads", "state", *(f"gradient of {name}" for name in inputs))
        label = f"{length} tokens, hold {hold}" + (", several documents" if packed else "")
        for name, actual_tensor, expected_tensor in zip(names, actual, expected, strict=True):
            assert_close(f"{label}: the {name}", actual_tensor, expected_tensor)


def an_empty_memory_reads_zero(case: ComponentCase) -> None:
    """Before the first key-value pair is written, the output is exactly 0."""
    for name in ("delayed_stream", "delayed_chunk"):
        model = case.build_model(timing={"name": name, "window": SMALL_WINDOW}, mixer="fw_only")
        output, _ = model.memories[0](fixed_noise(2, 2 * SMALL_WINDOW, 8))
        if output[:, :SMALL_WINDOW].abs().max() > 0:
            raise CheckFailed(f"timing {name}: before any token is written, the output is not 0.")
        if not output[:, SMALL_WINDOW:].abs().max() > 0:
            raise CheckFailed(f"timing {name}: the output is 0 even after a token was written.")


def gates_are_in_range(case: ComponentCase) -> None:
    """Gates have the right shape; those of a linear rule have log_keep <= 0 and lookups that cannot diverge."""
    rule = build("update_rule", case.spec, width=8, heads=2).double()
    gates = rule.gates(10 * fixed_noise(3, 5, 8))
    if gate_error := rule.find_gate_error(gates, rows=3, heads=2, tokens=5) or rule.find_channel_error(gates, 4, 4):
        raise ComponentUnusable(gate_error)
    if not isinstance(rule, LinearRule):
        return
    feature_map = build("feature_map", rule.feature_map, width=8, heads=2).double()
    q, k, v = (fixed_noise(3, 2, 5 * n, 4, seed=n) for n in (1, rule.writes, rule.writes))
    _, keys, _, linear_gates = rule.checked_scan_inputs(feature_map(q), feature_map(k), v, gates)
    if linear_gates.log_keep is not None and linear_gates.log_keep.max() > 0:
        raise CheckFailed(
            f"log_keep reaches {linear_gates.log_keep.max().item():.2g}, but the logarithm of a decay is at most 0: "
            "the memory grows without bound."
        )
    check_lookups(rule, keys, fill_first_lookups(linear_gates, 5, keys.shape[2] // 5))


def check_lookups(rule: LinearRule, k: Tensor, gates: Gates) -> None:
    """Raise CheckFailed if a lookup can make the memory diverge.

    A write scales what is stored along its key by 1 - p . k, for the lookup key p.
    """
    lookup_key = gates.lookup_key(k)
    if lookup_key is None:
        return
    overlap = (lookup_key * k).sum(-1)
    if not (overlap.min() >= -1e-6 and overlap.max() <= 2 + 1e-6):
        raise CheckFailed(
            f"the product of lookup key and key reaches from {overlap.min().item():.2g} to {overlap.max().item():.2g}: "
            "outside 0 to 2 the memory diverges. Check `erase`, or the lookup key."
        )
    uses_written_key = gates.lookup is None and gates.early_lookup is None
    if uses_written_key and overlap.max() > 0 and not rule.needs_unit_keys:
        raise CheckFailed(
            "the rule erases, so it diverges unless keys are unit vectors. Declare this: needs_unit_keys = True."
        )


def example_inputs(rule: Any, length: int) -> dict[str, Any]:
    """Return inputs of a scan: mapped queries and keys, values, the rule's own gates, and a state it has reached."""
    feature_map = build("feature_map", rule.feature_map, width=8, heads=2).double()
    x = fixed_noise(2, length, 8, seed=1)
    q = feature_map(fixed_noise(2, 2, length, 4, seed=2))
    k = feature_map(fixed_noise(2, 2, length * rule.writes, 4, seed=3))
    v = fixed_noise(2, 2, length * rule.writes, 4, seed=4)
    with torch.no_grad():
        gates = rule.gates(x)
        _, state = rule.reference(q, k, v, gates, None, DEFAULT_CONTEXT)
    return {"q": q, "k": k, "v": v, "gates": gates, "state": state}


def random_valid_mask(length: int, padded: bool) -> Tensor | None:
    """Return a mask in which about two thirds of the tokens are valid, or None without padding."""
    return fixed_noise(2, length, seed=5) > -0.5 if padded else None


def random_doc_starts(length: int, hold: int | None, packed: bool) -> Tensor | None:
    """Return a mask of the first tokens of documents, at multiples of `hold`; None with one document per row."""
    starts = (fixed_noise(2, length, seed=8) > 0.5) & (torch.arange(length) % (hold or 1) == 0)
    return starts if packed else None


def run_scan(scan: Any, inputs: dict[str, Any], context: ScanContext) -> list[Tensor]:
    """Run a scan; return its reads, its state and the gradient of every input."""
    leaves: list[Tensor] = []

    def as_leaf(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1]

    leaf_inputs = {
        name: map_gates(as_leaf, value) if name == "gates" else as_leaf(value) for name, value in inputs.items()
    }
    reads, state = scan(*leaf_inputs.values(), context)
    loss = (reads * fixed_noise(*reads.shape, seed=6)).sum() + (state * fixed_noise(*state.shape, seed=7)).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    gate_gradients = torch.cat([gradient.flatten() for gradient in gradients[3:-1]] or [loss.new_zeros(1)])
    return [reads, state, *gradients[:3], gate_gradients, gradients[-1]]


def methods_return_what_softmax_needs(case: ComponentCase) -> None:
    """The methods keep shapes, forget gates are at most 1, and each key is transformed by itself."""
    attention: Attention = build("attention", case.spec, width=8, heads=2).double()
    x, tokens = 5 * fixed_noise(3, 5, 8), 5 * fixed_noise(3, 9, 8, seed=1)  # queries, and all tokens that are read
    tokens[:, -5:] = x
    features, log_forget = attention.key_features(tokens), attention.log_forget(tokens)
    if features is not None and (features.dim() != 4 or features.shape[:3] != (3, 2, 9)):
        raise ComponentUnusable(f"key_features is {list(features.shape)} for 9 tokens, but [3, 2, 9, F] is needed.")
    check_log_forget(log_forget)
    q, k, v = fixed_noise(3, 2, 5, 4, seed=2), fixed_noise(3, 2, 9, 4, seed=3), fixed_noise(3, 2, 9, 4, seed=4)
    inputs = attention.transform(x, AttentionInputs(q, k, v, features, torch.arange(5, 10)[None]))
    expected_shapes = ((inputs.q, 5, inputs.k.shape[-1]), (inputs.k, 9, inputs.k.shape[-1]))
    for u, length, channels in (*expected_shapes, (inputs.v, 9, inputs.v.shape[-1])):
        if u.shape != (3, 2, length, channels):
            raise ComponentUnusable(f"transform returns {list(u.shape)}, but {[3, 2, length, channels]} is needed.")
    last = None if features is None else features[:, :, -5:]
    alone = attention.transform(x, AttentionInputs(q, k[:, :, -5:], v[:, :, -5:], last, torch.arange(5, 10)[None]))
    for name, u, expected in (("keys", inputs.k, alone.k), ("values", inputs.v, alone.v)):
        assert_close(f"the {name} of the last tokens, with other tokens before them,", u[:, :, -5:], expected)
    output = attention.finish(x, inputs.v[:, :, :5])
    if output.shape != (3, 2, 5, 4):
        raise ComponentUnusable(f"finish returns {list(output.shape)}, but [3, 2, 5, 4] is needed.")


def check_log_forget(log_forget: Tensor | None) -> None:
    """Raise unless the forget gates of 3 rows of 9 tokens are [3, 2, 9] and at most 1."""
    if log_forget is None:
        return
    if log_forget.shape != (3, 2, 9):
        raise ComponentUnusable(f"log_forget is {list(log_forget.shape)} for 9 tokens, but [3, 2, 9] is needed.")
    if not log_forget.max() <= 0:
        raise CheckFailed(
            f"log_forget reaches {log_forget.max().item():.2g}: scores of older tokens grow without bound."
        )


@torch.no_grad()
def scores_are_finite_for_long_documents(case: ComponentCase) -> None:
    """In float32 the output at the end of a long document equals that in float64, with and without a window."""
    for window in (SMALL_WINDOW, None):
        model = case.build_model(timing={"name": "synchronous", "window": window}, mixer="kv_only")
        x = fixed_noise(1, LONG_DOCUMENT, 8)
        expected = model.memories[0](x)[0][:, -8:]
        actual = model.float().memories[0](x.float())[0][:, -8:]
        assert_close(f"window {window}: the last outputs in float32", actual.double(), expected, 1e-3)


def backends_equal_the_reference(case: ComponentCase) -> None:
    """Every backend of this machine gives the output and the gradients of dense attention, under every timing."""
    for timing in (*case.timing_specs(), {"name": "synchronous", "window": None}):
        memory = case.build_model(timing=timing, mixer="kv_only").memories[0]
        x = fixed_noise(2, 70, 8)
        expected = run_memory(memory, x, "dense")
        for backend in ("auto", "sdpa", "blocks"):
            for actual_tensor, expected_tensor in zip(run_memory(memory, x, backend), expected, strict=True):
                assert_close(f"timing {timing}, backend {backend}", actual_tensor, expected_tensor)


def run_memory(memory: HybridMemory, x: Tensor, backend: AttentionBackend) -> list[Tensor]:
    """Return the output of a layer and the gradients of its input and parameters."""
    memory.set_backends(OpsConfig(attention=backend))
    leaf = x.clone().requires_grad_()
    y, _ = memory(leaf)
    return [y, *torch.autograd.grad((y * fixed_noise(*y.shape, seed=1)).sum(), [leaf, *memory.parameters()])]


TIMING_LENGTH = 13


def returns_a_schedule(case: ComponentCase) -> None:
    """A timing returns a Schedule."""
    schedule = build("timing", case.spec)
    if not isinstance(schedule, Schedule):
        raise CheckFailed(f"the timing returns a {type(schedule).__name__}, not a Schedule.")


def memories_cover_the_past(case: ComponentCase) -> None:
    """At every step, each past token is in at least one memory."""
    schedule = build("timing", case.spec)
    missing = ~(schedule.fast_weight_mask(TIMING_LENGTH) | schedule.softmax_mask(TIMING_LENGTH)) & causal_mask()
    if missing.any():
        t, s = missing.nonzero()[0].tolist()
        raise CheckFailed(f"at token {t}, token {s} is in neither memory.")


def memories_may_overlap(case: ComponentCase) -> Iterator[CheckResult]:
    """The memories may share tokens; the result shows the largest number of tokens that are in both at a step.

    It is 0 in the delayed timings.  A delay or a hold shorter than the window makes the memories overlap.
    """
    schedule = build("timing", case.spec)
    needed_length = schedule.max_pending_tokens + (schedule.attention_span or 0) + 1  # for the largest overlap
    length = min(max(TIMING_LENGTH, needed_length), MAX_MASK_LENGTH)
    in_both = schedule.fast_weight_mask(length) & schedule.softmax_mask(length)
    overlap = int(in_both.sum(1).max())
    yield CheckResult("memories may overlap", "passed", f"at most {overlap} tokens are in both memories")


def memories_follow_the_schedule(case: ComponentCase) -> None:
    """Measured by perturbing tokens, each output depends on exactly the tokens that the schedule declares."""
    schedule = build("timing", case.spec)
    for mixer, declared_mask in (("fw_only", schedule.fast_weight_mask), ("kv_only", schedule.softmax_mask)):
        # linear attention has no gates, so a token acts through its key-value pair alone
        rule = {"name": "linear_attention", "normalizer": "none"}
        visible = measure_visibility(case.build_model(mixer=mixer, update_rule=rule).memories[0])
        differs = (
            (visible != declared_mask(TIMING_LENGTH)) & causal_mask() & ~torch.eye(TIMING_LENGTH, dtype=torch.bool)
        )
        if differs.any():
            t, s = differs.nonzero()[0].tolist()
            relation = "sees" if visible[t, s] else "does not see"
            raise CheckFailed(f"{mixer}: the output at token {t} {relation} token {s}, unlike the schedule.")


def measure_visibility(memory: torch.nn.Module) -> Tensor:
    """Return a mask [TIMING_LENGTH, TIMING_LENGTH]: whether the output at t changes with token s."""
    x = fixed_noise(1, TIMING_LENGTH, 8)
    outputs, _ = memory(x)
    columns = []
    for s in range(TIMING_LENGTH):
        perturbed = x.clone()
        perturbed[:, s] = fixed_noise(8, seed=s + 1)
        columns.append((memory(perturbed)[0] - outputs).abs().amax(-1)[0] > 1e-12)
    return torch.stack(columns, 1)


def causal_mask() -> Tensor:
    return torch.ones(TIMING_LENGTH, TIMING_LENGTH, dtype=torch.bool).tril()


def every_read_memory_is_used(case: ComponentCase) -> None:
    """The output depends on the memories in `reads` and works with None for the others."""
    mixer = build("mixer", case.spec, width=8, heads=2).double()
    if not mixer.reads or not set(mixer.reads) <= {"fw", "kv"}:
        raise CheckFailed(f"`reads` must contain fw, kv or both, got {mixer.reads}.")
    x, outputs = fixed_noise(2, 5, 8), example_outputs(mixer)
    inputs = {name: output if name in mixer.reads else None for name, output in outputs.items()}
    mixed = mixer(x, **inputs)
    if mixed.shape != (2, 2, 5, 4):
        raise CheckFailed(f"two inputs [2, 2, 5, 4] give an output {list(mixed.shape)}.")
    for name in mixer.reads:
        if torch.equal(mixer(x, **(inputs | {name: outputs[name] + 1})), mixed):
            raise CheckFailed(f"`reads` contains {name}, but the output does not depend on it.")


def example_outputs(mixer: Mixer) -> dict[str, Tensor]:
    """Return outputs of both memories as the mixer gets them: of all heads, or of the memory's own."""
    own_heads = mixer.own_heads or {"fw": 2, "kv": 2}
    return {name: fixed_noise(2, own_heads[name], 5, 4, seed=seed) for seed, name in enumerate(("fw", "kv"), 1)}


def weights_reproduce_the_output(case: ComponentCase) -> None:
    """If a mixer has `weights` (a, b), its output is a * fw + b * kv, with weight 0 for a memory it does not read.

    If it has `contributions`, its output is their sum.
    """
    mixer = build("mixer", case.spec, width=8, heads=2).double()
    x, (fw, kv) = fixed_noise(2, 5, 8), example_outputs(mixer).values()
    if not has_contributions(mixer):
        return
    mixed = mixer(x, fw if "fw" in mixer.reads else None, kv if "kv" in mixer.reads else None)
    if has_weights(mixer):
        a, b = mixer.weights(x)
        assert_close("the sum given by `weights`, compared with `forward`,", a * fw + b * kv, mixed)
    else:
        assert_close("the sum of `contributions`, compared with `forward`,", sum(mixer.contributions(x, fw, kv)), mixed)


def positions_keep_the_shape(case: ComponentCase) -> None:
    """Embeddings, queries and keys keep their shape and stay finite, also at negative positions."""
    component = build("positions", case.spec, width=8, heads=2).double()
    position = torch.arange(-3, 4)[None]
    x, u = fixed_noise(2, 7, 8), fixed_noise(2, 2, 7, 4)
    for name, before, after in (
        ("embed", x, component.embed(x, position)),
        ("rotate", u, component.rotate(u, position)),
    ):
        if after.shape != before.shape or not after.isfinite().all():
            raise CheckFailed(
                f"`{name}` changes the shape {list(before.shape)} to {list(after.shape)}, or its output is not finite."
            )


def positions_are_per_row(case: ComponentCase) -> None:
    """Rows at different positions give the same result as each row alone."""
    component = build("positions", case.spec, width=8, heads=2).double()
    position = torch.stack([torch.arange(7), torch.arange(7) + 40])
    x, u = fixed_noise(2, 7, 8), fixed_noise(2, 2, 7, 4)
    for number in range(2):
        row = slice(number, number + 1)
        embedded, rotated = component.embed(x, position)[row], component.rotate(u, position)[row]
        assert_close(f"`embed` of row {number}", embedded, component.embed(x[row], position[row]))
        assert_close(f"`rotate` of row {number}", rotated, component.rotate(u[row], position[row]))


def features_are_as_declared(case: ComponentCase) -> None:
    """Features are as the feature map declares: number, norm, sign and products; the gradient at zero is finite."""
    feature_map = build("feature_map", case.spec, width=8, heads=2).double()
    features = feature_map(fixed_noise(3, 2, 50, 4) * 3)
    if features.shape != (3, 2, 50, feature_map.features(4)):
        raise CheckFailed(
            f"an input [3, 2, 50, 4] gives features {list(features.shape)}, but `features(4)` is "
            f"{feature_map.features(4)}."
        )
    if feature_map.has_unit_norm and (features.norm(dim=-1) - 1).abs().max() > 1e-3:
        raise CheckFailed("`has_unit_norm` is declared, but some features do not have norm 1.")
    if feature_map.has_bounded_norm and features.norm(dim=-1).max() > 1 + 1e-9:
        raise CheckFailed("`has_bounded_norm` is declared, but some features have a norm above 1.")
    if feature_map.is_nonnegative and features.min() < 0:
        raise CheckFailed("`is_nonnegative` is declared, but some features are negative.")
    if feature_map.has_nonnegative_products and (features @ features.mT).min() < 0:
        raise CheckFailed("`has_nonnegative_products` is declared, but the product of some features is negative.")
    zero = torch.zeros(1, 1, 1, 4, dtype=torch.float64, requires_grad=True)
    feature_map(zero).sum().backward()
    if zero.grad is None or not zero.grad.isfinite().all():
        raise CheckFailed("the gradient at zero is not finite.")
