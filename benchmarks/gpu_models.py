"""Models that `gpu.py` trains: the arms of the paper, and models of fla with the same sizes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpu_cases import SCALES, Case, Machine, PreparedCase
from torch import Tensor, nn

from hqlt_lab.model.analysis.backend_report import layer_backends
from hqlt_lab.model.analysis.roofline import CHIPS, roofline
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel

HYBRID = {"update_rule": {"name": "delta", "max_beta": 2}, "mixer": "vector", "positions": "rope"}
TRANSFORMER = {"mixer": "kv_only", "timing": {"name": "synchronous", "window": None}, "value_activation": "none"}
ARMS: dict[str, dict[str, Any]] = {
    "HQLT synchronous": HYBRID | {"timing": {"name": "synchronous", "window": 64}},
    "HQLT delayed_stream": HYBRID | {"timing": {"name": "delayed_stream", "window": 64}},
    "HQLT delayed_chunk": HYBRID | {"timing": {"name": "delayed_chunk", "window": 64}},
    "DeltaNet": {"update_rule": "delta", "mixer": "fw_only"},
    "Transformer++": TRANSFORMER | {"head_norm": False, "residual_init": "normal"},
}
FLA_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "fla DeltaNet": ("DeltaNet", {"use_short_conv": False}),
    "fla GatedDeltaNet": ("GatedDeltaNet", {"use_short_conv": False, "use_gate": False, "expand_v": 1}),
    "fla Transformer, flash-attn": ("Transformer", {}),
}


def model_cases(size: str) -> Iterator[Case]:
    """Yield our models, then those of fla."""
    for name, settings in ARMS.items():
        yield Case("model", size, name, settings["mixer"] != "kv_only", partial(prepare_arm, size, name))
    for name in FLA_MODELS:
        yield Case("model", size, name, True, partial(prepare_fla_model, size, name))


def build_arm(size: str, name: str) -> SequenceModel:
    """Build one of our arms on torch's current device, with torch's default weights: speed does not depend on them."""
    scale = SCALES[size]
    # the paper's Transformer++ has heads of 64 channels, all others of 128
    heads = 2 * scale.heads if name == "Transformer++" else scale.heads
    shape = {"width": scale.width, "heads": heads, "layers": scale.layers, "vocabulary": scale.vocabulary}
    return SequenceModel(ModelConfig(**shape, **ARMS[name]))


def prepare_arm(size: str, name: str, machine: Machine, rows: int) -> PreparedCase:
    with torch.device(machine.device):
        model = build_arm(size, name).set_backends(machine.ops)
    details = describe_backends(model, SCALES[size].length, machine) | upper_bounds(model, SCALES[size].length, rows)
    return prepare_training(model, lambda output: output[0], size, machine, rows, details)


def prepare_fla_model(size: str, name: str, machine: Machine, rows: int) -> PreparedCase:
    import fla.models

    scale, (family, options) = SCALES[size], FLA_MODELS[name]
    heads = 2 * scale.heads if family == "Transformer" else scale.heads
    shape = {"hidden_size": scale.width, "num_heads": heads, "num_hidden_layers": scale.layers}
    options = options | {"vocab_size": scale.vocabulary, "use_cache": False}
    if family == "GatedDeltaNet":
        options |= {"head_dim": scale.width // heads}
    if machine.device == "cpu":
        options |= {"fuse_swiglu": False}  # fla's fused SwiGLU does not support autocast on the CPU
    config = getattr(fla.models, f"{family}Config")(**shape, **options)
    with torch.device(machine.device):
        model = getattr(fla.models, f"{family}ForCausalLM")(config)
    return prepare_training(model, lambda output: output.logits, size, machine, rows, {})


def prepare_training(
    model: nn.Module,
    get_logits: Callable[[Any], Tensor],
    size: str,
    machine: Machine,
    rows: int,
    details: dict[str, Any],
) -> PreparedCase:
    """Prepare a training step: forward, cross-entropy, backward, AdamW."""
    scale = SCALES[size]
    tokens = torch.randint(scale.vocabulary, (rows, scale.length + 1), device=machine.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = torch.compile(model) if machine.compile else model

    def train_step() -> Tensor:
        with torch.autocast(machine.device, machine.dtype):
            logits = get_logits(forward(tokens[:, :-1])).flatten(0, 1)
            loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return PreparedCase(train_step, {"parameters": parameters, **details}, rows * scale.length)


def describe_backends(model: SequenceModel, length: int, machine: Machine) -> dict[str, Any]:
    """Return the backends of both memories and why they were chosen; all layers are alike."""
    first_layer = layer_backends(model, length, machine.device, machine.dtype)[0]
    return {
        "ops": {memory: {"by": choice.name, "why": choice.reason} for memory, choice in first_layer._asdict().items()}
    }


def upper_bounds(model: SequenceModel, length: int, rows: int) -> dict[str, Any]:
    """Return upper bounds on the tokens per second of each chip."""
    bound = roofline(model, length, rows)
    return {"most_tokens_per_second": {chip.name: bound.tokens_per_second(chip) for chip in CHIPS}}
