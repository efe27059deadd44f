"""Gradients of parameters, and initial values that survive a backbone and a file."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hqlt_lab.check.conformance_report import CheckFailed
from hqlt_lab.check.modules.adapter_interface import Adapter, NotApplicable, convert_inputs, fixed_seed
from hqlt_lab.check.modules.causal_lm_adapter import CausalLMAdapter

# modules that the usual initialization of a backbone sets
INITIALIZED_BY_BACKBONES = (nn.Linear, nn.Embedding, nn.Conv1d)
KEEP_MARKS = ("_no_reinit", "_is_hf_initialized")  # attributes by which a layer protects its values


def every_parameter_gets_a_gradient(adapter: Adapter) -> str:
    """Every parameter, or every tensor that a function reads, gets a gradient that is finite and not 0."""
    inputs = convert_inputs(adapter.draw_inputs(2, adapter.options.round_length(40)), torch.float32)
    module = adapter.module(torch.float32)
    leaves = dict(module.named_parameters()) if module is not None else inputs
    for leaf in leaves.values():
        leaf.requires_grad_()
    # a random direction: the sum of normalized outputs has no gradient
    output = adapter.run(module, inputs).output
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output)
    gradients = torch.autograd.grad((output * direction).sum(), list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        if gradient is None or not gradient.abs().max() > 0:
            raise CheckFailed(f"{name} gets no gradient.")
        if not gradient.isfinite().all():
            raise CheckFailed(f"the gradient of {name} is not finite.")
    return f"{len(leaves)} tensors"


def initial_values_survive_a_backbone(adapter: Adapter) -> str:
    """A backbone that initializes all linear layers does not overwrite values that the layer sets itself.

    Also, a module that sets values in `reset_parameters` has them inside of the target.
    """
    module, second_build = adapter.build(seed=0), adapter.build(seed=1)
    if module is None or second_build is None:
        raise NotApplicable("a function has no parameters")
    num_compared = require_reset_values(module)
    if isinstance(adapter, CausalLMAdapter):
        if not num_compared:
            raise NotApplicable("the target is a backbone, and no layer sets values in reset_parameters")
        return f"{num_compared} values of reset_parameters"
    own_values = dict(find_own_values(module, second_build))
    with fixed_seed(2):
        module.apply(initialize_like_a_backbone)
    for name, value in module.named_parameters():
        if name in own_values and not torch.equal(value, own_values[name]):
            raise CheckFailed(
                f"{name} is set by the layer, and a backbone that initializes its linear layers overwrites it. Use a "
                "parameter outside of nn.Linear, or mark it with `_no_reinit` if your backbone respects that."
            )
    return f"{len(own_values)} values of linear layers are set by the layer itself"


def find_own_values(module: nn.Module, second_build: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield weights and biases of linear layers that the target sets: constants, and biases beyond torch's range."""
    others = dict(second_build.named_parameters())
    for path, layer in module.named_modules():
        if not isinstance(layer, INITIALIZED_BY_BACKBONES):
            continue
        for name, value in layer.named_parameters(recurse=False):
            full_name = f"{path}.{name}" if path else name
            is_constant = torch.equal(value, others[full_name])
            default_bound = layer.weight[0].numel() ** -0.5  # torch draws biases of linear layers within it
            is_beyond_default = name == "bias" and value.abs().max() > default_bound * 1.0001
            # a bias of 0 is what backbones set
            if (is_constant and (name != "bias" or value.any())) or is_beyond_default:
                yield full_name, value.detach().clone()


@torch.no_grad()
def initialize_like_a_backbone(layer: nn.Module) -> None:
    """Set weights to N(0, 0.02^2) and biases to 0, as GPT-2 and most backbones after it; respect marks."""
    if not isinstance(layer, INITIALIZED_BY_BACKBONES) or any(getattr(layer, mark, False) for mark in KEEP_MARKS):
        return
    for name, value in layer.named_parameters(recurse=False):
        if not any(getattr(value, mark, False) for mark in KEEP_MARKS):
            value.zero_() if name == "bias" else value.normal_(std=0.02)


def require_reset_values(module: nn.Module) -> int:
    """Raise CheckFailed if a value that reset_parameters sets is another one inside of the target; count the values."""
    num_compared = 0
    for path, layer in module.named_modules():
        if type(layer).__module__.startswith("torch.nn") or not hasattr(layer, "reset_parameters"):
            continue
        resets = [copy.deepcopy(layer), copy.deepcopy(layer)]
        for seed, reset in enumerate(resets):
            with fixed_seed(seed):
                reset.reset_parameters()
        values = zip(layer.named_parameters(), *(reset.parameters() for reset in resets), strict=True)
        for (name, value), first, second in values:
            if not torch.equal(first, second):
                continue  # drawn at random
            num_compared += 1
            if not torch.equal(value, first):
                location = f"{path}.{name}" if path else name
                raise CheckFailed(f"reset_parameters sets {location}, but inside of the target it has other values.")
    return num_compared


def initial_values_survive_a_file(adapter: Adapter) -> str:
    """A target that was saved and loaded has the same parameters and outputs."""
    module = adapter.module(torch.float32)
    if module is None:
        raise NotApplicable("a function has no parameters")
    loaded = adapter.save_and_load(module, seed=1)
    expected_values, loaded_values = dict(module.named_parameters()), dict(loaded.named_parameters())
    if different := sorted(expected_values.keys() ^ loaded_values.keys()):
        raise CheckFailed(f"{different[0]} is not in both targets.")
    for name, value in expected_values.items():
        if not torch.equal(value, loaded_values[name]):
            raise CheckFailed(f"{name} has other values after loading.")
    inputs = convert_inputs(adapter.draw_inputs(2, adapter.options.round_length(20)), torch.float32)
    with torch.no_grad():
        if not torch.equal(adapter.run(loaded, inputs).output, adapter.run(module, inputs).output):
            raise CheckFailed("the parameters are equal, but not the outputs: a value is not saved.")
    return f"{len(expected_values)} parameters"
