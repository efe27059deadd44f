"""Every parameter is drawn from (seed, its name): models of one seed differ only where they differ.

    linear, convolution, embedding     N(0, std^2), biases 0
    maps into the residual stream      U(+-1/sqrt(fan in)) / sqrt(2 layers), or like the others
    whatever has `reset_parameters`    its own, run after its children were drawn, so that a part has the last word

Draws are made on the CPU and then moved: the same seed is the same model on every device.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hqlt_lab.errors import ConfigError
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.memory import ToResidual

DRAWN = (nn.Linear, nn.Conv1d, nn.Embedding)


class Undrawn(TorchFunctionMode):
    """Modules that are made inside keep what memory held: torch's own draws are skipped.

    For models on the meta device, where the first draw would load torch's compiler, which takes seconds.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Draw all parameters of a model with these settings."""
    for path, module in reversed(list(model.named_modules())):  # children before their parents
        if isinstance(module, ToResidual) and config.residual_init == "rescaled":
            bound = 1 / math.sqrt(module.in_features * 2 * config.layers)
            draw(module.weight, f"{path}.weight", seed, partial(nn.init.uniform_, a=-bound, b=bound))
        elif isinstance(module, DRAWN):
            draw(module.weight, f"{path}.weight", seed, partial(nn.init.normal_, std=config.init_std))
        elif hasattr(module, "reset_parameters"):
            reset(module, path, seed)
        elif own := [name for name, _ in module.named_parameters(recurse=False)]:
            raise ConfigError(
                f"{path}: {type(module).__name__} owns {', '.join(own)} and has no reset_parameters() to draw it."
            )
        if isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None:
            module.bias.zero_()


def reset(module: Any, path: str, seed: int) -> None:
    """A part's own initialisation, from its own stream of random numbers."""
    with drawing_from(seed, path):
        module.reset_parameters()


def draw(parameter: Tensor, name: str, seed: int, fill: Callable[[Tensor], Any]) -> None:
    """Fill one parameter from its own stream of random numbers."""
    with drawing_from(seed, name):
        drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        fill(drawn)
    parameter.copy_(drawn)


@contextmanager
def drawing_from(seed: int, name: str) -> Iterator[None]:
    """Inside, torch's CPU random numbers are a function of (seed, name); outside, nothing has changed."""
    digest, draws = hashlib.sha256(f"{seed}/{name}".encode()).digest(), torch.default_generator
    before = draws.get_state()
    draws.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    try:
        yield
    finally:
        draws.set_state(before)
