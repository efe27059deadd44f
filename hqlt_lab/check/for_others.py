"""Promises of mixers, positions and feature maps."""

import torch

from hqlt_lab.check.report import Broken
from hqlt_lab.check.subject import Subject, noise, same
from hqlt_lab.components.mixers._base import gives_weights
from hqlt_lab.registry import build


def mixes_what_it_reads(subject: Subject) -> None:
    """The answer depends on the memories that `reads` names, and on no other: a mixer gets None in place of those."""
    mixer = build("mixer", subject.spec, width=8, heads=2).double()
    if not mixer.reads or not set(mixer.reads) <= {"fw", "kv"}:
        raise Broken(f"`reads` names fw, kv or both, not {mixer.reads}.")
    x, answers = noise(2, 5, 8), {name: noise(2, 2, 5, 4, seed=i) for i, name in enumerate(("fw", "kv"), 1)}
    given = {name: answer if name in mixer.reads else None for name, answer in answers.items()}
    mixed = mixer(x, **given)
    if mixed.shape != (2, 2, 5, 4):
        raise Broken(f"two answers [2, 2, 5, 4] become one {list(mixed.shape)}.")
    for name in mixer.reads:
        if torch.equal(mixer(x, **(given | {name: answers[name] + 1})), mixed):
            raise Broken(f"it reads {name} and does not use it.")


def weights_explain_the_answer(subject: Subject) -> None:
    """a * fw + b * kv is the answer, where a mixer gives weights; what it does not read counts for nothing."""
    mixer = build("mixer", subject.spec, width=8, heads=2).double()
    if not gives_weights(mixer):
        return
    x, fw, kv = noise(2, 5, 8), noise(2, 2, 5, 4, seed=1), noise(2, 2, 5, 4, seed=2)
    a, b = mixer.weights(x)
    mixed = mixer(x, fw if "fw" in mixer.reads else None, kv if "kv" in mixer.reads else None)
    same("`weights` say another sum than `forward`", a * fw + b * kv, mixed)


def positions_keep_the_shape(subject: Subject) -> None:
    """Embeddings, queries and keys keep their shape and stay finite, at places before the text too."""
    part = build("positions", subject.spec, width=8, heads=2).double()
    place = torch.arange(-3, 4)[None]
    for what, old, new in (
        ("embed", x := noise(2, 7, 8), part.embed(x, place)),
        ("turn", u := noise(2, 2, 7, 4), part.turn(u, place)),
    ):
        if new.shape != old.shape or not new.isfinite().all():
            raise Broken(f"`{what}` turns {list(old.shape)} into {list(new.shape)}, or is not finite.")


def positions_are_per_row(subject: Subject) -> None:
    """Rows at different places are treated as if each were alone."""
    part = build("positions", subject.spec, width=8, heads=2).double()
    place = torch.stack([torch.arange(7), torch.arange(7) + 40])
    x, u = noise(2, 7, 8), noise(2, 2, 7, 4)
    for row in range(2):
        one = slice(row, row + 1)
        same(f"`embed` of row {row}", part.embed(x, place)[one], part.embed(x[one], place[one]))
        same(f"`turn` of row {row}", part.turn(u, place)[one], part.turn(u[one], place[one]))


def features_keep_their_promise(subject: Subject) -> None:
    """`unit` and `positive` are true, and the gradient is finite at zero."""
    part = build("feature_map", subject.spec, width=8, heads=2).double()
    features = part(noise(3, 2, 50, 4) * 3)
    if features.shape != (3, 2, 50, 4):
        raise Broken(f"[3, 2, 50, 4] becomes {list(features.shape)}.")
    if part.unit and (features.norm(dim=-1) - 1).abs().max() > 1e-3:
        raise Broken("`unit` is declared, and some features have another length than 1.")
    if part.positive and features.min() < 0:
        raise Broken("`positive` is declared, and some features are negative.")
    zero = torch.zeros(1, 1, 1, 4, dtype=torch.float64, requires_grad=True)
    part(zero).sum().backward()
    if zero.grad is None or not zero.grad.isfinite().all():
        raise Broken("the gradient at zero is not finite.")
