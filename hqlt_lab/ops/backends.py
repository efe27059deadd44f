"""Which implementation computes each memory, and why that one.

    fast weights    fla          Triton kernels of flash-linear-attention, on a GPU
                    torch        the lab's chunked scan, on every device
                    recurrent    one step at a time: the truth, slow
    softmax         flash_attn   flash-attention's kernels, on a GPU
                    flex         torch's flex_attention, compiled for the schedule, on a GPU
                    sdpa         scaled_dot_product_attention of torch: causal, folded blocks, or one mask
                    blocks       the lab's bands and blocks, on every device

All give the same, up to rounding; `hqlt check backends` shows it.  A backend either takes a job or says in a sentence
why not.  `auto` is the first of its list that takes it; one that is asked for by name takes it or raises.  Where a
faster one is only not installed, that is told.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from hqlt_lab.errors import ConfigError, did_you_mean, listed

SMALL = (torch.float16, torch.bfloat16)
GET = {
    "fla": "pip install -c constraints.txt -e '.[gpu]'",
    "flash_attn": "pip install --no-build-isolation -c constraints.txt -e '.[flash]'",
}


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
    obstacle: str = ""  # what only a general implementation can do, such as "its erase and write differ"


class Choice(NamedTuple):
    """What computes, and why."""

    name: str
    why: str
    missing: str = ""  # what to install to be faster


Refusal = Callable[[Job], str]  # why it cannot take the job; empty where it can


def refuses_fla(job: Job) -> str:
    if job.obstacle:
        return job.obstacle
    if job.dtype not in (*SMALL, torch.float32):
        return f"it does not compute in {name_of(job.dtype)}"
    if job.key > 256:
        return f"it takes keys of 256 channels at most, not {job.key}"
    return not_there("fla", job)


def refuses_flash_attn(job: Job) -> str:
    if job.obstacle:
        return job.obstacle
    if job.dtype not in SMALL:
        return f"it computes in bfloat16 and float16, not in {name_of(job.dtype)}"
    if max(job.key, job.value) > 256:
        return f"it takes heads of 256 channels at most, not {max(job.key, job.value)}"
    return not_there("flash_attn", job)


def takes_everything(job: Job) -> str:
    return ""


SCANS: Mapping[str, Refusal] = {  # the fastest first
    "fla": refuses_fla,
    "torch": takes_everything,
    "recurrent": takes_everything,
}
ATTENTIONS: Mapping[str, Refusal] = {
    "flash_attn": refuses_flash_attn,
    "blocks": takes_everything,
    "sdpa": takes_everything,
}


def choose(backends: Mapping[str, Refusal], wanted: str, job: Job) -> Choice:
    """The backend that takes this job."""
    if wanted != "auto":
        return asked_for(backends, wanted, job)
    passed: list[str] = []
    missing = ""
    for name, refuses in backends.items():
        why_not = refuses(job)
        if not why_not:
            return Choice(name, "; ".join(passed) or "the fastest there is for this", missing)
        passed.append(f"not {name}: {why_not}")
        if why_not == not_installed(name):
            missing = missing or GET[name]
    raise ConfigError(f"ops: nothing computes this ({'; '.join(passed)}).")


def asked_for(backends: Mapping[str, Refusal], wanted: str, job: Job) -> Choice:
    if wanted not in backends:
        names = ["auto", *backends]
        raise ConfigError(
            f"ops: there is no backend {wanted!r}.{did_you_mean(wanted, names)} There is: {listed(names)}."
        )
    if why_not := backends[wanted](job):
        get = f" Install it: {GET[wanted]}." if why_not == not_installed(wanted) else " Use auto, or another backend."
        raise ConfigError(f"ops: {wanted} was asked for and cannot compute this: {why_not}.{get}")
    return Choice(wanted, "asked for")


def not_there(package: str, job: Job) -> str:
    """Of a package of GPU kernels: why it cannot run here at all."""
    if job.device != "cuda" and not (package == "fla" and interpreted()):
        return "it needs a GPU"
    return "" if installed(package) else not_installed(package)


def not_installed(package: str) -> str:
    return f"{package} is not installed"


def installed(package: str) -> bool:
    """Looked up, not imported: flash-attn takes seconds, and may be broken where it is not used."""
    if package not in _installed:
        _installed[package] = importlib.util.find_spec(package) is not None
    return _installed[package]


_installed: dict[str, bool] = {}


def interpreted() -> bool:
    """Whether Triton's kernels run on CPU tensors, for checks."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def advise(what: str, choice: Choice) -> Choice:
    """Say once per process that something slow is used for want of something to install."""
    if choice.missing and not torch.compiler.is_compiling():
        sentence = f"{what}: {choice.name} computes on this GPU, and something faster is missing. {choice.missing}"
        if sentence not in _told:
            _told.add(sentence)
            warnings.warn(sentence, BackendWarning, stacklevel=2)
    return choice


_told: set[str] = set()


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
