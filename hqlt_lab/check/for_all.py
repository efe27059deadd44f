"""Promises that every part makes, whatever its kind."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

import torch
from torch import nn

from hqlt_lab.check.alone import reads_like_each_alone
from hqlt_lab.check.report import Broken, Line
from hqlt_lab.check.subject import Subject, in_pieces, noise, same, tensors
from hqlt_lab.errors import ConfigError
from hqlt_lab.model.initialise import reset
from hqlt_lab.model.layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.registry import build


def reads_only_the_past(subject: Subject) -> None:
    """Changing a token changes no answer before it."""
    for timing in subject.timings():
        model, x = subject.model(timing=timing), noise(2, 9, 8)
        whole, _ = model(x)
        for t in range(1, 9):
            other = torch.cat([x[:, :t], noise(2, 9 - t, 8, seed=t)], 1)
            where = f"timing {timing['name']}: with other tokens from {t} on, the answers before"
            same(where, model(other)[0][:, :t], whole[:, :t])


def any_split_is_the_whole(subject: Subject) -> None:
    """Answers and final state do not depend on how a text is cut, in training and in evaluation mode."""
    for timing in subject.timings():
        for model in (subject.model(timing=timing, short_conv=3), subject.model(timing=timing).eval()):
            streams_like_a_whole(model, f"timing {timing['name']}, ", ([5, 6], [3, 1, 7], [1] * 11))


def leaves_the_given_state_alone(subject: Subject) -> None:
    """A state can be gone on from twice."""
    for timing in subject.timings():
        model, x = subject.model(timing=timing), noise(2, 9, 8)
        _, state = model(x[:, :5])
        before = [tensor.clone() for tensor in tensors(state)]
        with torch.no_grad():
            model(x[:, 5:], state)
        for one, other in zip(tensors(state), before, strict=True):
            same(f"timing {timing['name']}: the state that was handed over", one, other, 0.0)


def rows_know_nothing_of_each_other(subject: Subject) -> None:
    """Each row of a batch is answered as if it were alone."""
    for timing in subject.timings():
        model, x = subject.model(timing=timing), noise(3, 7, 8)
        together, _ = model(x)
        for row in range(3):
            same(f"timing {timing['name']}: row {row} alone", model(x[row : row + 1])[0], together[row : row + 1])


def streams_like_a_whole(model: SequenceModel, where: str, splits: tuple[list[int], ...]) -> None:
    x = noise(2, sum(splits[0]), model.config.width)
    whole, state = model(x)
    if not whole.isfinite().all():
        raise Broken(f"{where}the answer is not finite.")
    for split in splits:
        answer, last = in_pieces(model, x, split)
        same(f"{where}in pieces of {split}, the answer", answer, whole)
        if len(tensors(state)) != len(tensors(last)):
            raise Broken(f"{where}in pieces of {split}, the state has other fields.")
        for one, other in zip(tensors(last), tensors(state), strict=True):
            same(f"{where}in pieces of {split}, the state", one, other)


def keeps_the_dtype(subject: Subject) -> None:
    """What comes in as bfloat16 goes out as bfloat16, and the fast weights add up in float32 at least."""
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    for dtype, timing in product(dtypes, subject.timings()):
        model = subject.model(timing=timing).to(dtype)
        answer, state = model(noise(2, 5, 8).to(dtype))
        if answer.dtype != dtype or not answer.isfinite().all():
            raise Broken(f"{dtype} in, {answer.dtype} out, or not finite, with timing {timing['name']}.")
        fw = state[0].fw
        if fw is not None and fw.dtype != torch.promote_types(dtype, torch.float32):
            raise Broken(f"with {dtype} the fast weights are {fw.dtype}.")


def every_parameter_learns(subject: Subject) -> None:
    """A parameter without a gradient is dead weight."""
    model = subject.model()
    model(noise(2, 9, 8))[0].square().sum().backward()
    for name, parameter in part_of(model, subject).named_parameters():
        if parameter.grad is None or not parameter.grad.abs().max() > 0:
            raise Broken(f"{name} gets no gradient.")
        if not parameter.grad.isfinite().all():
            raise Broken(f"the gradient of {name} is not finite.")


def own_initialisation_survives(subject: Subject) -> None:
    """What a part sets itself, in its constructor or in reset_parameters, is still there after composition."""
    composed = part_of(subject.model(), subject)
    one, other = (build(subject.kind, subject.spec, width=8, heads=2) for _ in range(2))
    if not isinstance(one, nn.Module):
        return
    if not hasattr(one, "reset_parameters"):
        no_weights_of_its_own(one)
    pairs = zip(one.named_parameters(), other.parameters(), composed.parameters(), strict=True)
    for (name, first), second, now in pairs:
        if torch.equal(first, second) and not torch.equal(first.double(), now):
            raise Broken(f"{name} was set by the constructor and is overwritten: set it in reset_parameters().")
    if hasattr(composed, "reset_parameters"):
        before = {name: value.clone() for name, value in composed.named_parameters(recurse=False)}
        reset(one, f"blocks.0.memory.{subject.kind}", seed=0)
        for name, value in one.named_parameters(recurse=False):
            same(f"{name} after composition", before[name], value.double(), 1e-6)


def no_weights_of_its_own(part: nn.Module) -> None:
    """Torch draws a linear map within a bound; larger weights were drawn by the part, and would be drawn anew."""
    for path, module in part.named_modules():
        if isinstance(module, nn.Linear) and module.weight.abs().max() > module.in_features**-0.5:
            raise Broken(f"{path}.weight was drawn by the constructor and is overwritten: use reset_parameters().")


# two rows: padding between and before the tokens, documents that begin inside a window and inside a piece
PADDED_AND_PACKED = Layout(
    real=torch.tensor([[1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]]).bool(),
    starts=torch.tensor([[0, 0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1]]).bool(),
)


def crosses_with_every_part(subject: Subject) -> Iterator[Line]:
    """Every choice of all other parts streams like a whole, padded and packed too, or is refused with a reason."""
    refused: Counter[str] = Counter()
    legal = 0
    for others in subject.crossings():
        try:
            model = subject.model(**others)
        except ConfigError as reason:
            refused[str(reason).split(". ")[0].removeprefix("feature_map: ")] += 1
            continue
        named = ", ".join(part["name"] for part in others.values())
        streams_like_a_whole(model, f"with {named}: ", ([4, 3], [1] * 7))
        with torch.no_grad():
            reads_like_each_alone(model, f"with {named}: ", noise(2, 7, 8), PADDED_AND_PACKED, [[4, 3]])
        legal += 1
    yield Line("crosses with every part", "passed", f"{legal} compositions")
    for why, times in refused.items():
        yield Line("crosses with every part", "illegal", f"{times} compositions: {why}.")


def compiles(subject: Subject) -> None:
    """torch.compile (aot_eager) gives the same answer and gradient."""
    torch.compiler.reset()
    model, x = subject.model(), noise(2, 5, 8)
    plain = model(x)[0]
    weight = model.memories[0].to_q.weight
    (want,) = torch.autograd.grad(plain.square().sum(), weight)
    compiled = torch.compile(model, backend="aot_eager")(x)[0]
    (got,) = torch.autograd.grad(compiled.square().sum(), weight)
    same("the answer", compiled, plain)
    same("the gradient", got, want)


def part_of(model: SequenceModel, subject: Subject) -> nn.Module:
    """The part itself, inside the model; a timing has no parameters."""
    return nn.Module() if subject.kind == "timing" else model.memories[0].get_submodule(subject.kind)
