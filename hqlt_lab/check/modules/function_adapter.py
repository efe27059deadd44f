"""Calls a function of queries, keys, values and gates, such as the reference implementations of fla.

    hqlt check module fla.ops.comba.naive:naive_chunk_comba --against fla.ops.comba.naive:naive_recurrent_comba

Each argument without a default gets a tensor, whose shape and values follow from its name (ARGUMENT_SPECS) or are given
with `--call tensor.NAME=BTHK:unit`.  The output is the first tensor that the function returns.  `initial_state` and
`output_final_state` are its cache, `cu_seqlens` its documents.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hqlt_lab.check.modules.adapter_interface import Adapter, Inputs, RunResult
from hqlt_lab.check.modules.call_options import CallOptions, TensorSpec
from hqlt_lab.errors import ConfigError, format_names

HEADS, KEY_DIM, VALUE_DIM = 2, 8, 6
ARGUMENT_SPECS = {
    "q": TensorSpec("BTHK"),
    "k": TensorSpec("BTHK", "unit"),
    "v": TensorSpec("BTHV"),
    "p": TensorSpec("BTHK", "unit"),  # lookup key
    "g": TensorSpec("BTH", "log_decay"),
    "gk": TensorSpec("BTHK", "log_decay"),
    "beta": TensorSpec("BTH", "strength"),
}


class FunctionAdapter(Adapter):
    """Calls a function of tensors."""

    def __init__(
        self, function: Callable[..., Any], name: str, settings: Mapping[str, Any], options: CallOptions
    ) -> None:
        super().__init__(name, settings, options)
        self.function = function
        self.parameters = inspect.signature(function).parameters
        self.specs = self.find_specs()
        self.time_axis_of_output = (self.specs.get("v") or next(iter(self.specs.values()))).axes.index("T")
        no_argument = "the function has no argument for "
        self.missing = {"mask": f"{no_argument}a mask", "parameters": "a function has no parameters"}
        if not {"initial_state", "output_final_state"} <= set(self.parameters):
            self.missing["cache"] = "the function has no arguments initial_state and output_final_state"
        if "cu_seqlens" not in self.parameters:
            self.missing["documents"] = f"{no_argument}cu_seqlens"

    def find_specs(self) -> dict[str, TensorSpec]:
        """Return shape and values of each argument that is a tensor."""
        if unknown := sorted(set(self.options.tensors) - set(self.parameters)):
            message = f"the function has no argument {unknown[0]!r}."
            hint = f"Arguments: {format_names(self.parameters)}."
            raise ConfigError.at(f"--call tensor.{unknown[0]}", "unknown_function_argument", message, hint)
        specs = {}
        for name, parameter in self.parameters.items():
            if name in self.settings or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if name in self.options.tensors:
                specs[name] = self.options.tensors[name]
            elif parameter.default is parameter.empty:
                if name not in ARGUMENT_SPECS:
                    hint = f"Give it with `--call tensor.{name}=BTHK`, or its value with `--set {name}=...`."
                    message = f"the shape of the argument {name!r} is not known."
                    raise ConfigError.at(f"--call tensor.{name}", "unknown_argument_shape", message, hint)
                specs[name] = ARGUMENT_SPECS[name]
        return specs

    def build(self, seed: int) -> None:
        return None

    def draw_inputs(self, rows: int, tokens: int, seed: int = 0) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        sizes = {"B": rows, "T": tokens, "H": HEADS, "K": KEY_DIM, "V": VALUE_DIM}
        inputs = {}
        for name, spec in self.specs.items():
            noise = torch.randn([sizes[axis] for axis in spec.axes], generator=generator, dtype=torch.float64)
            inputs[name] = shape_values(noise, spec).movedim(spec.axes.index("T"), 1)
        return inputs

    def run(
        self,
        module: nn.Module | None,
        inputs: Inputs,
        *,
        cache: Any = None,
        keeps_cache: bool = False,
        mask: Tensor | None = None,
        document_lengths: list[int] | None = None,
    ) -> RunResult:
        arguments: dict[str, Any] = {
            name: inputs[name].movedim(1, spec.axes.index("T")) for name, spec in self.specs.items()
        }
        if keeps_cache or cache is not None:
            arguments |= {"initial_state": cache, "output_final_state": True}
        if document_lengths is not None:
            arguments["cu_seqlens"] = torch.tensor([0, *document_lengths]).cumsum(0)
        result = self.function(**arguments, **self.settings)
        output = result if isinstance(result, Tensor) else result[0]
        has_cache = "output_final_state" in arguments and not isinstance(result, Tensor)
        return RunResult(output.movedim(self.time_axis_of_output, 1), result[-1] if has_cache else None)


def shape_values(noise: Tensor, spec: TensorSpec) -> Tensor:
    """Return noise as unit vectors, log decays of -0.2 on average, or strengths between 0 and 1."""
    if spec.values == "unit":
        return nn.functional.normalize(noise, dim=-1)
    if spec.values == "log_decay":
        return -nn.functional.softplus(noise) / 4
    return noise.sigmoid() if spec.values == "strength" else noise
