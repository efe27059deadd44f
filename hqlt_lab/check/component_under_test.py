"""The component under test, and the small models it is tested in.

The models use float64, two heads of four channels and a window of three tokens: small enough to try every split and
every pair of components, long enough to cross several windows and chunks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from random import Random
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import COMPONENT_KINDS, ModelConfig
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel, State
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import available, build, options

SMALL_WINDOW = 3
MAX_MASK_LENGTH = 2048  # tokens; the masks of longer schedules take too much memory
FLOAT64_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ComponentCase:
    """A component with its options."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> dict[str, Any]:
        return small_spec(self.kind, self.name, self.options)

    def build_model(self, seed: int = 0, **overrides: Any) -> SequenceModel:
        """Build a float64 model of one layer with the component; vectors in, vectors out.

        `overrides` are further model settings.
        """
        config = ModelConfig(**self.model_settings(**overrides))
        model = SequenceModel(config)
        initialize_parameters(model, config, seed)
        return model.double()

    def model_settings(self, **overrides: Any) -> dict[str, Any]:
        """Return the settings of a model of one layer with the component; `overrides` are further settings."""
        settings: dict[str, Any] = {"timing": small_spec("timing", "synchronous"), "mixer": "sum", "positions": "none"}
        if self.kind == "feature_map":
            settings["update_rule"] = "retention"  # accepts every feature map
        settings |= overrides | {self.kind: self.spec}
        return {"width": 8, "heads": 2, "layers": 1, "mlp_width": 16, "init_std": 0.5} | settings

    def pairwise_models(self, **settings: Any) -> Iterator[tuple[dict[str, Any], SequenceModel | ConfigError]]:
        """Yield combinations of components of the other kinds, each with its model, or the error of a rejected one.

        The models contain every pair of components of two other kinds that is not always rejected.  The combinations
        are tried in a random order that is always the same; those without a new pair are left out.
        """
        kinds = [kind for kind in COMPONENT_KINDS if kind != self.kind]
        choices = list(product(*(available(kind) for kind in kinds)))
        Random(0).shuffle(choices)
        covered_pairs: set[tuple[tuple[str, str], ...]] = set()
        for names in choices:
            pairs = set(combinations(zip(kinds, names, strict=True), 2))
            if pairs <= covered_pairs:
                continue
            other_components: dict[str, Any] = {
                kind: small_spec(kind, name) for kind, name in zip(kinds, names, strict=True)
            }
            try:
                model = self.build_model(**(other_components | settings))
            except ConfigError as error:
                yield other_components, error
            else:
                covered_pairs |= pairs
                yield other_components, model

    def timing_specs(self) -> list[dict[str, Any]]:
        """Return all timings, or only the one under test."""
        return [self.spec] if self.kind == "timing" else [small_spec("timing", name) for name in available("timing")]


def small_spec(kind: str, name: str, given_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the spec of a component with the given options, and with a short window if it has that option.

    A given window is kept.  If a timing covers the past and with the short window it would not, because of its other
    lengths, such as a delay, then all lengths are divided by the same number.
    """
    spec = {"name": name, **(given_options or {})}
    if "window" not in options(kind, name) or "window" in spec:
        return spec
    short = spec | {"window": SMALL_WINDOW}
    if kind == "timing" and covers_the_past(kind, spec) and not covers_the_past(kind, short):
        return spec | shorten_lengths({key: option.default for key, option in options(kind, name).items()} | spec)
    return short


def covers_the_past(kind: str, spec: Mapping[str, Any]) -> bool:
    """Return whether each past token is in some memory at every step.

    Return True for a schedule that is too long to compute, and for a component that does not make a schedule.
    """
    schedule = build(kind, spec)
    if not isinstance(schedule, Schedule):
        return True
    length = 2 * (schedule.max_pending_tokens + (schedule.attention_span or 0)) + 1
    if length > MAX_MASK_LENGTH:
        return True
    causal_mask = torch.ones(length, length, dtype=torch.bool).tril()
    return not (~(schedule.fast_weight_mask(length) | schedule.softmax_mask(length)) & causal_mask).any()


def shorten_lengths(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return all integer options divided by their largest common divisor that leaves a window >= SMALL_WINDOW."""
    lengths = {key: value for key, value in settings.items() if isinstance(value, int) and not isinstance(value, bool)}
    common = math.gcd(*lengths.values())
    divisors = (d for d in range(1, common + 1) if common % d == 0 and lengths["window"] // d >= SMALL_WINDOW)
    divisor = max(divisors, default=1)
    return {key: value // divisor for key, value in lengths.items()}


def fixed_noise(*shape: int, seed: int = 0) -> Tensor:
    """Return float64 normal noise that depends only on shape and seed."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def run_in_chunks(model: SequenceModel, x: Tensor, lengths: Iterable[int]) -> tuple[Tensor, State]:
    """Run a model on consecutive chunks of these lengths; return the concatenated outputs and the last state."""
    state, outputs, start = None, [], 0
    for length in lengths:
        output, state = model(x[:, start : start + length], state)
        outputs.append(output)
        start += length
    assert state is not None and start == x.shape[1]
    return torch.cat(outputs, 1), state


def flatten_tensors(tree: Any) -> list[Tensor]:
    """Return all tensors in nested tuples and lists, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for branch in tree for tensor in flatten_tensors(branch)] if isinstance(tree, tuple | list) else []


def count_held_bytes(tree: Any) -> int:
    """Return the bytes of all tensors in nested tuples and lists.  Tensors that share a storage are counted once."""
    return sum({tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in flatten_tensors(tree)}.values())


def assert_close(label: str, actual: Tensor, expected: Tensor, tolerance: float = FLOAT64_TOLERANCE) -> None:
    """Raise CheckFailed unless two tensors have the same shape and are equal up to rounding."""
    if actual.shape != expected.shape:
        raise CheckFailed(f"{label}: the shapes are {tuple(actual.shape)} and {tuple(expected.shape)}.")
    # a state may hold infinite numbers: the log-keeps of tokens that are still to be written
    is_same_infinity = expected.isinf() & (actual == expected)
    actual, expected = (x.masked_fill(is_same_infinity, 0.0) for x in (actual, expected))
    deviation = (actual - expected).abs().max().item() if actual.numel() else 0.0
    is_close = deviation <= tolerance * (1 + expected.abs().max().item() if expected.numel() else 1.0)
    if not is_close or not math.isfinite(deviation):
        raise CheckFailed(f"{label}: the deviation is {deviation:.1e}.")
