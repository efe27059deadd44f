"""How a job finds the backend that computes it, and what is told about that.

A backend says of a job why it cannot take it, or why it should not.  `auto` is the first of its list that has nothing
to say; one that is asked for by name takes whatever it can, or raises.  Where a GPU computes by what was not made for
it, that is told, with what to do about it.
"""

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from hqlt_lab.errors import ConfigError, did_you_mean, listed


class BackendWarning(UserWarning):
    """What is computed could be computed faster."""


class Job(NamedTuple):
    """What is to be computed, as far as a backend may care."""

    device: str  # "cuda", "cpu", ...
    dtype: torch.dtype  # of the values, which says what precision the layer works in
    key: int  # channels of a key
    value: int  # channels of a value
    documents: bool = False  # whether several documents lie in a row, or rows stand at different places
    masked: bool = False  # softmax: whether there is more to hide than what is to come
    past: bool = False  # softmax: whether there are keys from before the first query
    learning: bool = True  # whether gradients are wanted
    obstacle: str = ""  # what only a general implementation can do, such as "its erase and write differ"


Reason = Callable[[Job], str]  # a clause, or nothing


def none(job: Job) -> str:
    return ""


class Backend(NamedTuple):
    """What it cannot do, and what it can but had better not."""

    cannot: Reason = none
    should_not: Reason = none
    general: bool = False  # takes everything on every device, and was not made for a GPU
    package: str = ""  # that has to be installed
    get: str = ""  # how


class Choice(NamedTuple):
    """What computes, and why."""

    name: str
    why: str
    slow: str = ""  # why that is slow, and what to do about it


def choose(backends: Mapping[str, Backend], wanted: str, job: Job) -> Choice:
    """The backend that takes this job."""
    if wanted != "auto":
        return asked_for(backends, wanted, job)
    passed: dict[str, str] = {}
    for name, backend in backends.items():
        why_not = reason(backend, job) or backend.should_not(job)
        if not why_not:
            why = "; ".join(f"not {other}: {told}" for other, told in passed.items())
            slow = backend.general and job.device == "cuda" and not job.past
            return Choice(name, why or "the fastest there is for this", what_to_do(backends, passed) if slow else "")
        passed[name] = why_not
    raise ConfigError(f"ops: nothing computes this ({passed}).")


def reason(backend: Backend, job: Job) -> str:
    """Why it cannot, empty where it can."""
    return backend.cannot(job) or ("" if installed(backend.package) else not_installed(backend))


def what_to_do(backends: Mapping[str, Backend], passed: Mapping[str, str]) -> str:
    """About a GPU that has to compute by what was not made for it."""
    told = "; ".join(f"{name}: {why_not}" for name, why_not in passed.items())
    for name, why_not in passed.items():
        if why_not == not_installed(backends[name]):
            return f"{told}. Install it: {backends[name].get}"
    return f"{told}."


def asked_for(backends: Mapping[str, Backend], wanted: str, job: Job) -> Choice:
    if wanted not in backends:
        names = ["auto", *backends]
        raise ConfigError(
            f"ops: there is no backend {wanted!r}.{did_you_mean(wanted, names)} There is: {listed(names)}."
        )
    if why_not := reason(backends[wanted], job):
        missing = why_not == not_installed(backends[wanted])
        help = f"Install it: {backends[wanted].get}" if missing else "Use auto, or another backend."
        raise ConfigError(f"ops: {wanted} was asked for and cannot compute this: {why_not}. {help}")
    return Choice(wanted, "asked for")


def not_installed(backend: Backend) -> str:
    return f"{backend.package} is not installed"


def installed(package: str) -> bool:
    """Looked up, not imported: flash-attn takes seconds, and may be broken where it is not used."""
    if package and package not in _installed:  # functools.cache is nothing that torch.compile would follow
        _installed[package] = importlib.util.find_spec(package) is not None
    return not package or _installed[package]


_installed: dict[str, bool] = {}


def advise(what: str, choice: Choice) -> Choice:
    """Say once per process that a GPU computes by something slow."""
    if choice.slow and not torch.compiler.is_compiling() and (what, choice) not in _told:
        _told.add((what, choice))
        sentence = f"{what}: {choice.name} computes on this GPU, slowly. {choice.slow}"
        warnings.warn(sentence, BackendWarning, stacklevel=2)
    return choice


_told: set[tuple[str, Choice]] = set()
