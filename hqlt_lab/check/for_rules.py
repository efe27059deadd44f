"""Promises of an update rule."""

from typing import Any

import torch
from torch import Tensor

from hqlt_lab.check.report import Broken, Unusable
from hqlt_lab.check.subject import WINDOW, Subject, noise, same
from hqlt_lab.ops.chunked import CHUNK
from hqlt_lab.ops.steps import PLAIN, Course, Gates, each
from hqlt_lab.registry import build


def scan_is_the_reference(subject: Subject) -> None:
    """The fast way equals one step at a time: reads, state and all gradients, from any state, at odd lengths."""
    cases = (
        (1, None, False, False),
        (1, None, True, True),
        (7, 3, True, False),
        (9, 4, False, True),
        (2 * CHUNK + 3, None, True, False),
        (2 * CHUNK + 3, None, True, True),
        (2 * CHUNK + 3, 3, True, True),
        (2 * CHUNK + 3, CHUNK + 6, True, False),
    )
    for length, hold, some_unreal, documents in cases:
        rule = build("update_rule", subject.spec, width=8, heads=2).double()
        inputs, course = example(rule, length), Course(hold, some(length, some_unreal), first(length, hold, documents))
        fast, slow = (run(scan, inputs, course) for scan in (rule.scan, rule.reference))
        names = ("reads", "state", *(f"gradient of {name}" for name in inputs))
        told = f"{length} tokens, hold {hold}" + (", several documents" if documents else "")
        for name, one, other in zip(names, fast, slow, strict=True):
            same(f"{told}: the {name}", one, other)


def an_empty_memory_reads_zero(subject: Subject) -> None:
    """Before any pair was written, the answer is 0 to the last bit."""
    for name in ("delayed_stream", "delayed_chunk"):
        model = subject.model(timing={"name": name, "window": WINDOW}, mixer="fw_only")
        answer, _ = model.memories[0](noise(2, 2 * WINDOW, 8))
        if answer[:, :WINDOW].abs().max() > 0:
            raise Broken(f"timing {name}: before any token arrives, the answers are not 0.")
        if not answer[:, WINDOW:].abs().max() > 0:
            raise Broken(f"timing {name}: the memory answers 0 even after it was written.")


def gates_are_in_range(subject: Subject) -> None:
    """A linear rule keeps at most everything: log_keep <= 0; and its gates are [B, H, tokens * writes]."""
    rule = build("update_rule", subject.spec, width=8, heads=2).double()
    gates = rule.gates(10 * noise(3, 5, 8))
    if told := rule.misfit(gates, rows=3, heads=2, tokens=5):
        raise Unusable(told)
    erase = gates.erase if isinstance(gates, Gates) else None
    if erase is not None and not (erase.min() >= 0 and erase.max() <= 2):
        raise Broken(
            f"erase reaches from {erase.min().item():.2g} to {erase.max().item():.2g}: beyond 0 to 2 it diverges."
        )
    if erase is not None and erase.max() > 0 and not rule.needs_unit_keys:
        raise Broken("it erases, and with keys that are not unit vectors it diverges. Say so: needs_unit_keys = True.")
    if isinstance(gates, Gates) and gates.log_keep is not None and gates.log_keep.max() > 0:
        raise Broken(f"log_keep reaches {gates.log_keep.max().item():.2g}: the memory grows by itself.")


def example(rule: Any, length: int) -> dict[str, Any]:
    """Unit keys, gates the rule makes itself, and a state it has come to."""
    features = build("feature_map", rule.feature_map, width=8, heads=2).double()
    x = noise(2, length, 8, seed=1)
    q, k = features(noise(2, 2, length, 4, seed=2)), features(noise(2, 2, length * rule.writes, 4, seed=3))
    v = noise(2, 2, length * rule.writes, 4, seed=4)
    with torch.no_grad():
        gates = rule.gates(x)
        _, state = rule.reference(q, k, v, gates, None, PLAIN)
    return {"q": q, "k": k, "v": v, "gates": gates, "state": state}


def some(length: int, unreal: bool) -> Tensor | None:
    """Steps that are real, about two thirds of them."""
    return noise(2, length, seed=5) > -0.5 if unreal else None


def first(length: int, hold: int | None, documents: bool) -> Tensor | None:
    """Steps with which a document begins, and with it a stretch."""
    begins = (noise(2, length, seed=8) > 0.5) & (torch.arange(length) % (hold or 1) == 0)
    return begins if documents else None


def run(scan: Any, inputs: dict[str, Any], course: Course) -> list[Tensor]:
    """Reads, state, and the gradient of every input of one scan."""
    leaves: list[Tensor] = []

    def leaf(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1]

    mine = {name: each(leaf, value) if name == "gates" else leaf(value) for name, value in inputs.items()}
    reads, state = scan(*mine.values(), course)
    loss = (reads * noise(*reads.shape, seed=6)).sum() + (state * noise(*state.shape, seed=7)).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    of_gates = torch.cat([grad.flatten() for grad in gradients[3:-1]] or [loss.new_zeros(1)])
    return [reads, state, *gradients[:3], of_gates, gradients[-1]]
