"""How large a model is, part by part: parameters, bytes of state, FLOPs of training and of decoding.

    found = sizes(model, 2048)                   a live model, also one on the meta device
    found.total.training / found.length          FLOPs per training token
    found["softmax"].state                       bytes that a row carries after 2048 tokens

2 FLOPs per multiply-add of a matrix product or a convolution, nothing for element-wise work, as torch's
FlopCounterMode has it.  What is counted how: `model/flops.py` and `ops/flops.py`.  The optimiser is not in it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hqlt_lab.components.update_rules._base import StepRule
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.flops import part_of, work
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state_size import state_size

BEFORE = ("embedding", "positions", "norms", "projections", "convolutions", "feature_map")
PARTS = (*BEFORE, "update_rule", "fast_weights", "softmax", "mixer", "mlp", "head", "count")  # as a token meets them


class Size(NamedTuple):
    """Of one part, in all layers together."""

    part: str
    parameters: int = 0
    state: int = 0  # bytes that one row carries on after `length` tokens
    forward: int = 0  # FLOPs of one row of `length` tokens
    training: int = 0  # the same and its gradients
    decoding: int = 0  # FLOPs of the one token after these


@dataclass(frozen=True)
class Sizes:
    """Of a model, for rows of `length` tokens."""

    length: int
    parts: tuple[Size, ...]
    in_turn: int = 0  # steps that such a row takes one after the other, where rules have no parallel form

    @property
    def total(self) -> Size:
        return together("total", self.parts)

    def __getitem__(self, part: str) -> Size:
        """By name; a part that the model does not have is of size 0."""
        return together(part, (size for size in self.parts if size.part == part))


def sizes(model: SequenceModel, length: int) -> Sizes:
    """Of a live model that reads rows of that many tokens; decoding goes on after as many."""
    if length < 1:
        raise ConfigError(f"length: at least 1 token is needed, got {length}.")
    found = [*of_parameters(model), *of_states(model, length)]
    found += [Size(part, 0, 0, there, there + back, one) for part, there, back, one in work(model, length)]
    names = dict.fromkeys((*PARTS, *(size.part for size in found)))
    parts = (together(name, (size for size in found if size.part == name)) for name in names)
    return Sizes(length, tuple(size for size in parts if any(size[1:])), sum(in_turn(model)) * length)


def in_turn(model: SequenceModel) -> Iterator[int]:
    """Of each layer whose fast weights go step by step, the steps that a token is worth."""
    for memory in model.memories:
        rule = memory.update_rule
        if rule is not None and (memory.ops.scan == "recurrent" or type(rule).scan is StepRule.scan):
            yield memory.writes


def of_parameters(model: SequenceModel) -> Iterator[Size]:
    """Each once: a matrix that the head shares is the embedding's."""
    for name, parameter in model.named_parameters():
        yield Size(part_of(name), parameters=parameter.numel())


def of_states(model: SequenceModel, length: int) -> Iterator[Size]:
    """The ring is softmax's, or the fast weights' where tokens only wait in it."""
    for memory in model.memories:
        held = state_size(memory, length, memory.to_q.weight.dtype)
        yield Size("fast_weights" if memory.positions is None else "softmax", state=held.ring)
        yield from (Size("update_rule", state=held.gates), Size("fast_weights", state=held.fw))
        yield from (Size("convolutions", state=held.conv), Size("count", state=held.count))


def together(part: str, several: Iterable[Size]) -> Size:
    """Their sum, under one name."""
    columns = zip(*(size[1:] for size in several), strict=True)
    return Size(part, *(sum(column) for column in columns))
