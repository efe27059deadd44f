"""Two implementations of one function are equal in values and gradients, at lengths around the borders of chunks."""

import torch
from torch import nn

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter import Adapter, Inputs
from hqlt_lab.check.modules.function_adapter import FunctionAdapter
from hqlt_lab.check.modules.tensor_comparison import describe_deviation, largest_deviation, require_equal

TOLERANCE = 1e-4  # references compute in float32
STRONG_DECAY = 20.0  # factor of the logarithms of decays, with which a chunk forgets what is before it


def implementations_are_equal(adapter: Adapter, other: Adapter) -> str:
    """Outputs, final states and gradients of two implementations are equal, also with strong decays."""
    inputs = adapter.draw_inputs(2, 8)
    if different := sorted(inputs.keys() ^ other.draw_inputs(2, 8).keys()):
        raise CheckFailed(f"only one of the implementations reads {', '.join(different)}.")
    chunk, largest = adapter.options.chunk, 0.0
    lengths = {adapter.options.round_length(length) for length in (1, chunk - 1, chunk, 2 * chunk + 13)}
    for length in sorted(lengths):
        for factor in (1.0, STRONG_DECAY):
            inputs = adapter.draw_inputs(2, length)
            if factor != 1 and not scale_decays(adapter, inputs, factor):
                continue
            label = f"with {length} tokens" + (f" and decays to the power of {factor:.0f}" if factor != 1 else "")
            largest = max(largest, compare_implementations(adapter, other, inputs, label))
    return describe_deviation(largest, TOLERANCE)


def scale_decays(adapter: Adapter, inputs: Inputs, factor: float) -> bool:
    """Multiply the logarithms of decays; return whether there are any."""
    names = [
        name
        for name, spec in (adapter.specs.items() if isinstance(adapter, FunctionAdapter) else ())
        if spec.values == "log_decay"
    ]
    for name in names:
        inputs[name] *= factor
    return bool(names)


def compare_implementations(adapter: Adapter, other: Adapter, inputs: Inputs, label: str) -> float:
    """Return the largest deviation of outputs, final states and gradients; raise CheckFailed if it is too large."""
    module, other_module = adapter.module(), other.module()
    if module is not None and other_module is not None:
        load_same_weights(module, other_module)
    results = [run_with_gradients(each, target, inputs) for each, target in ((adapter, module), (other, other_module))]
    largest = 0.0
    for name, value in results[0].items():
        if name not in results[1]:
            continue  # only one of them returns a final state
        deviation = largest_deviation(value, results[1][name])
        require_equal(f"{label}, {name} of {adapter.name} and {other.name} differ", deviation, TOLERANCE)
        largest = max(largest, deviation)
    return largest


def load_same_weights(module: nn.Module, other: nn.Module) -> None:
    """Give the second module the weights of the first."""
    try:
        other.load_state_dict(module.state_dict())
    except RuntimeError as error:
        raise CheckFailed(f"the implementations have different parameters: {error}") from error


def run_with_gradients(adapter: Adapter, module: nn.Module | None, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return the output, the final state, and the gradients of all inputs and parameters."""
    inputs = {name: tensor.detach().clone() for name, tensor in inputs.items()}
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items() if tensor.is_floating_point()}
    leaves |= dict(module.named_parameters()) if module is not None else {}
    result = adapter.run(module, inputs, keeps_cache="cache" not in adapter.missing)
    results = {"the outputs": result.output.detach()}
    if isinstance(result.cache, torch.Tensor):
        results["the final states"] = result.cache.detach()
    direction = torch.randn(result.output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loss = (result.output.double() * direction).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        results[f"the gradients of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return results
