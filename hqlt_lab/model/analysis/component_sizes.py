"""Size of a model by component: parameters, bytes of state, FLOPs of training and of decoding.

    model_sizes = sizes(model, 2048)                     a model, also on the meta device
    model_sizes.total.training / model_sizes.length      FLOPs per training token
    model_sizes["softmax"].state                         bytes of state of one row after 2048 tokens

FLOPs follow torch's FlopCounterMode: 2 per multiply-add of a matrix product or a convolution, 0 for element-wise work.
Details: `model/analysis/model_flops.py` and `ops/flops.py`.  The optimizer is not included.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from hqlt_lab.components.update_rules._base import LinearRule, StepRule
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.analysis.model_flops import component_flops, component_of_name
from hqlt_lab.model.analysis.state_size import state_size
from hqlt_lab.model.gated_convolution import GatedConvolution
from hqlt_lab.model.sequence_model import SequenceModel

INPUT_COMPONENTS = ("embedding", "meta_tokens", "positions", "norms", "projections", "convolutions", "feature_map")
COMPONENT_ORDER = (
    *INPUT_COMPONENTS,
    "update_rule",
    "fast_weights",
    "attention",
    "softmax",
    "mixer",
    "mlp",
    "head",
    "document_length",
)  # in the order of computation


class ComponentSize(NamedTuple):
    """Size of one component, summed over all layers."""

    component: str
    parameters: int = 0
    state: int = 0  # bytes of the state of one row after `length` tokens
    forward: int = 0  # FLOPs of one row of `length` tokens
    training: int = 0  # FLOPs forward and backward of such a row
    decoding: int = 0  # FLOPs of the next token


@dataclass(frozen=True)
class ModelSizes:
    """Size of a model, for rows of `length` tokens."""

    length: int
    components: tuple[ComponentSize, ...]
    sequential_steps: int = 0  # sequential steps of such a row, in layers without a parallel scan

    @property
    def total(self) -> ComponentSize:
        return sum_sizes("total", self.components)

    def __getitem__(self, component: str) -> ComponentSize:
        """Return the size of a component by name; all 0 if the model does not have it."""
        return sum_sizes(component, (size for size in self.components if size.component == component))


def sizes(model: SequenceModel, length: int) -> ModelSizes:
    """Return the size of a model for rows of `length` tokens; decoding is counted after that many tokens."""
    if length < 1:
        raise ConfigError.at("length", "below_minimum", f"at least 1 token is needed, got {length}.")
    inner_length = length + model.config.meta_tokens
    contributions = [*parameter_sizes(model), *state_sizes(model, inner_length)]
    contributions += [
        ComponentSize(component, 0, 0, forward, forward + backward, decoding)
        for component, forward, backward, decoding in component_flops(model, length)
    ]
    names = dict.fromkeys((*COMPONENT_ORDER, *(size.component for size in contributions)))
    totals = (sum_sizes(name, (size for size in contributions if size.component == name)) for name in names)
    components = tuple(size for size in totals if any(size[1:]))
    return ModelSizes(length, components, sum(sequential_steps_per_token(model)) * inner_length)


def sequential_steps_per_token(model: SequenceModel) -> Iterator[int]:
    """Yield the sequential steps per token of each layer without a parallel scan."""
    for memory in model.memories:
        rule = memory.update_rule
        is_recurrent = isinstance(rule, LinearRule) and memory.ops.scan == "recurrent"
        if rule is not None and (is_recurrent or type(rule).scan is StepRule.scan):
            yield memory.writes


def parameter_sizes(model: SequenceModel) -> Iterator[ComponentSize]:
    """Yield the size of each parameter, once: a matrix shared with the head belongs to the embedding."""
    for name, parameter in model.named_parameters():
        yield ComponentSize(component_of_name(name), parameters=parameter.numel())


def state_sizes(model: SequenceModel, length: int) -> Iterator[ComponentSize]:
    """Yield the state of each layer after `length` tokens, meta tokens included.

    The KV cache belongs to softmax, or without softmax to the fast weights, as a cache of their own does.
    """
    for memory in model.memories:
        layer_state = state_size(memory, length, memory.to_out.weight.dtype)
        yield ComponentSize("fast_weights" if memory.positions is None else "softmax", state=layer_state.kv_cache)
        yield ComponentSize("softmax", state=layer_state.sinks)
        yield ComponentSize("attention", state=layer_state.attention)
        yield ComponentSize("update_rule", state=layer_state.gates)
        yield ComponentSize("fast_weights", state=layer_state.fw + layer_state.fw_cache)
        yield ComponentSize("convolutions", state=layer_state.conv)
        yield ComponentSize("document_length", state=layer_state.document_length)
    for module in model.modules():
        if isinstance(module, GatedConvolution):
            yield ComponentSize("convolutions", state=module.state_numbers * module.to_gate.weight.itemsize)
            yield ComponentSize("document_length", state=torch.long.itemsize)


def sum_sizes(component: str, component_sizes: Iterable[ComponentSize]) -> ComponentSize:
    """Add up sizes, under the given name."""
    columns = zip(*(size[1:] for size in component_sizes), strict=True)
    return ComponentSize(component, *(sum(column) for column in columns))
