"""Mixer that fails in a configurable way, as components under development do; tests load it with --with."""

import os
import resource
import signal
import time
from pathlib import Path

import torch
from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register


@register("mixer", "faulty")
class Faulty(Mixer):
    """Faulty: the sum of both memories, until it fails.

    how    raise, die, hang, nan, memory, hoard; any other word: no failure
    mark   a file created at the failure; if it exists, there is no further failure
    step   number of training forward passes before the failure; the determinism check does the first two of a run
    """

    def __init__(self, how: str = "nothing", mark: str = "", step: int = 0, seconds: float = 0.0) -> None:
        super().__init__()
        self.how, self.mark, self.step, self.seconds, self.calls = how, mark, step, seconds, 0

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            time.sleep(self.seconds)
            if self.calls > self.step and not (self.mark and Path(self.mark).exists()):
                if self.mark:
                    Path(self.mark).touch()
                return self.fail(fw + kv)
        return fw + kv

    def fail(self, mixed: Tensor) -> Tensor:
        if self.how == "raise":
            raise RuntimeError("the matrix is not in the mood")
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hang":
            time.sleep(3600)
        if self.how == "memory":
            raise torch.OutOfMemoryError("no more of it")
        if self.how == "hoard":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
            torch.empty(2**32)
        return mixed * (float("nan") if self.how == "nan" else 1.0)
