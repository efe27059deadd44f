"""Two implementations of one function are equal in values and gradients, at lengths around the borders of chunks."""

import torch
from torch import nn

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter_interface import Adapter, Inputs, NotApplicable, convert_inputs
from hqlt_lab.check.modules.function_adapter import FunctionAdapter
from hqlt_lab.check.modules.tensor_comparison import describe_deviation, largest_deviation, require_equal

STRONG_DECAY = 20.0  # factor of the logarithms of decays, with which a chunk forgets what is before it


def implementations_are_equal(adapter: Adapter, other: Adapter) -> str:
    """Outputs, final states and gradients of two implementations are equal."""
    return compare_at_all_lengths(adapter, other, decay_factor=1)


def implementations_are_equal_with_strong_decays(adapter: Adapter, other: Adapter) -> str:
    """The implementations are equal if the state decays to almost nothing within a few tokens."""
    return compare_at_all_lengths(adapter, other, decay_factor=STRONG_DECAY)


def compare_at_all_lengths(adapter: Adapter, other: Adapter, decay_factor: float) -> str:
    """Compare two implementations at lengths around the borders of chunks."""
    if different := sorted(adapter.draw_inputs(1, 1).keys() ^ other.draw_inputs(1, 1).keys()):
        raise CheckFailed(f"only one of the implementations reads {', '.join(different)}.")
    chunk, largest = adapter.options.chunk, 0.0
    lengths = {adapter.options.round_length(length) for length in (1, chunk - 1, chunk, 2 * chunk + 13)}
    for length in sorted(lengths):
        inputs = adapter.draw_inputs(2, length)
        if decay_factor != 1 and not scale_decays(adapter, inputs, decay_factor):
            raise NotApplicable("no input is the logarithm of a decay")
        largest = max(largest, compare_implementations(adapter, other, inputs, f"with {length} tokens"))
    return describe_deviation(largest)


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
    dtype = min(adapter.value_dtype, other.value_dtype, key=lambda dtype: dtype.itemsize)
    inputs = convert_inputs(inputs, dtype)
    module, other_module = adapter.module(dtype), other.module(dtype)
    if module is not None and other_module is not None:
        load_same_weights(module, other_module)
    results = [run_with_gradients(each, target, inputs) for each, target in ((adapter, module), (other, other_module))]
    largest = 0.0
    for name, value in results[0].items():
        if name not in results[1]:
            continue  # only one of them returns a final state
        deviation = largest_deviation(value, results[1][name])
        require_equal(f"{label}, {name} of {adapter.name} and {other.name} differ", deviation)
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
    direction = torch.randn(
        result.output.shape,
        generator=torch.Generator().manual_seed(2),
    )
    loss = (result.output * direction.to(result.output)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        results[f"the gradients of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return results
