"""Promises of a timing."""

import torch
from torch import Tensor

from hqlt_lab.check.report import Broken
from hqlt_lab.check.subject import Subject, noise
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import build

LENGTH = 13


def makes_a_schedule(subject: Subject) -> None:
    """A timing is data."""
    made = build("timing", subject.spec)
    if not isinstance(made, Schedule):
        raise Broken(f"it makes a {type(made).__name__}, not a Schedule.")


def together_they_hold_the_past(subject: Subject) -> None:
    """Every token that was read is in some memory."""
    schedule = build("timing", subject.spec)
    missing = ~(schedule.fast_weights_see(LENGTH) | schedule.softmax_sees(LENGTH)) & past()
    if missing.any():
        t, s = missing.nonzero()[0].tolist()
        raise Broken(f"at token {t}, token {s} is in neither memory.")


def delayed_means_once(subject: Subject) -> None:
    """With a delay or a hold, no token is in both memories."""
    schedule = build("timing", subject.spec)
    twice = schedule.fast_weights_see(LENGTH) & schedule.softmax_sees(LENGTH)
    if schedule.waits and twice.any():
        t, s = twice.nonzero()[0].tolist()
        raise Broken(f"at token {t}, token {s} is in both memories.")


def memories_see_what_it_says(subject: Subject) -> None:
    """Which answers change with which token: measured, and compared with the schedule."""
    schedule = build("timing", subject.spec)
    for mixer, says in (("fw_only", schedule.fast_weights_see), ("kv_only", schedule.softmax_sees)):
        rule = {"name": "linear_attention", "normaliser": "none"}  # no gates: a token acts through its pair alone
        seen = who_sees_whom(subject.model(mixer=mixer, update_rule=rule).memories[0])
        wrong = (seen != says(LENGTH)) & past() & ~torch.eye(LENGTH, dtype=torch.bool)
        if wrong.any():
            t, s = wrong.nonzero()[0].tolist()
            told = "sees" if seen[t, s] else "does not see"
            raise Broken(f"{mixer}: the answer at token {t} {told} token {s}, against the schedule.")


def who_sees_whom(memory: torch.nn.Module) -> Tensor:
    """[LENGTH, LENGTH]: does the answer at t change with token s?"""
    x = noise(1, LENGTH, 8)
    answers, _ = memory(x)
    columns = []
    for s in range(LENGTH):
        other = x.clone()
        other[:, s] = noise(8, seed=s + 1)
        columns.append((memory(other)[0] - answers).abs().amax(-1)[0] > 1e-12)
    return torch.stack(columns, 1)


def past() -> Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
