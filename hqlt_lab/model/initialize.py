"""Initialization of each parameter from (seed, its name): models of one seed share the values of common parameters.

    linear, convolution, embedding     N(0, std^2), biases 0
    maps into the residual stream      U(+-1/sqrt(fan in)) or N(0, std^2), / sqrt(2 layers), or like the others
    modules with `reset_parameters`    their own initialization, after that of their children

Values are drawn on the CPU and then copied, so that a seed gives the same model on every device.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hqlt_lab.errors import ConfigError
from hqlt_lab.hashing import derive_seed
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.hybrid_memory import ResidualProjection

NORMAL_INIT_MODULES = (nn.Linear, nn.Conv1d, nn.Embedding)


class SkipInit(TorchFunctionMode):
    """Skip torch's default initialization of modules built in this context: parameters are left uninitialized.

    For models on the meta device, where the first initialization would load torch.compile, which takes seconds.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def initialize_parameters(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Initialize all parameters of a model with these settings, in place."""
    for path, module in reversed(list(model.named_modules())):  # children before their parents
        if isinstance(module, ResidualProjection) and config.residual_init == "rescaled":
            bound = 1 / math.sqrt(module.in_features * 2 * config.layers)
            draw_parameter(module.weight, f"{path}.weight", seed, partial(nn.init.uniform_, a=-bound, b=bound))
        elif isinstance(module, ResidualProjection) and config.residual_init == "rescaled_normal":
            std = config.init_std / math.sqrt(2 * config.layers)
            draw_parameter(module.weight, f"{path}.weight", seed, partial(nn.init.normal_, std=std))
        elif isinstance(module, NORMAL_INIT_MODULES):
            draw_parameter(module.weight, f"{path}.weight", seed, partial(nn.init.normal_, std=config.init_std))
        elif hasattr(module, "reset_parameters"):
            reset_module(module, path, seed)
        elif names := [name for name, _ in module.named_parameters(recurse=False)]:
            raise ConfigError.at(
                path,
                "no_initialization",
                f"{type(module).__name__} has the parameters {', '.join(names)} and no reset_parameters().",
                "Add this method and initialize them in it.",
            )
        if isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None:
            module.bias.zero_()


def reset_module(module: Any, path: str, seed: int) -> None:
    """Run the `reset_parameters` of a module with its own random stream."""
    with seeded_rng(seed, path):
        module.reset_parameters()


def draw_parameter(parameter: Tensor, name: str, seed: int, fill: Callable[[Tensor], Any]) -> None:
    """Fill one parameter with values from its own random stream."""
    with seeded_rng(seed, name):
        values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        fill(values)
    parameter.copy_(values)


@contextmanager
def seeded_rng(seed: int, name: str) -> Iterator[None]:
    """Seed torch's CPU generator from (seed, name) in this context, and restore its state afterwards."""
    generator = torch.default_generator
    previous_state = generator.get_state()
    generator.manual_seed(derive_seed(f"{seed}/{name}"))
    try:
        yield
    finally:
        generator.set_state(previous_state)
