"""The models that `gpu.py` trains: the paper's arms as compositions of the lab, other people's at the same sizes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpu_cases import SCALES, Case, Machine, Made
from torch import Tensor, nn

from hqlt_lab.model.choices import choices
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.roofline import CHIPS, roofline
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
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "fla DeltaNet": ("DeltaNet", {"use_short_conv": False}),
    "fla GatedDeltaNet": ("GatedDeltaNet", {"use_short_conv": False, "use_gate": False, "expand_v": 1}),
    "fla Transformer, flash-attn": ("Transformer", {}),
}


def model_cases(size: str) -> Iterator[Case]:
    """Ours, then theirs."""
    for name, settings in ARMS.items():
        yield Case("model", size, name, settings["mixer"] != "kv_only", partial(make_ours, size, name))
    for name in THEIRS:
        yield Case("model", size, name, True, partial(make_theirs, size, name))


def composition(size: str, name: str) -> SequenceModel:
    """One of our arms, on torch's current device; its numbers are torch's, since speed does not depend on them."""
    scale = SCALES[size]
    # the paper's Transformer++ has heads of 64 channels, all others of 128
    heads = 2 * scale.heads if name == "Transformer++" else scale.heads
    shape = {"width": scale.width, "heads": heads, "layers": scale.layers, "vocabulary": scale.vocabulary}
    return SequenceModel(ModelConfig(**shape, **ARMS[name]))


def make_ours(size: str, name: str, machine: Machine, rows: int) -> Made:
    with torch.device(machine.device):
        model = composition(size, name).use(machine.ops)
    told = computed_by(model, SCALES[size].length, machine) | most(model, SCALES[size].length, rows)
    return training(model, lambda answer: answer[0], size, machine, rows, told)


def make_theirs(size: str, name: str, machine: Machine, rows: int) -> Made:
    import fla.models

    scale, (family, options) = SCALES[size], THEIRS[name]
    heads = 2 * scale.heads if family == "Transformer" else scale.heads
    shape = {"hidden_size": scale.width, "num_heads": heads, "num_hidden_layers": scale.layers}
    options = options | {"vocab_size": scale.vocabulary, "use_cache": False}
    if family == "GatedDeltaNet":
        options |= {"head_dim": scale.width // heads}
    if machine.device == "cpu":
        options |= {"fuse_swiglu": False}  # fla's fused one does not know the CPU's autocast
    config = getattr(fla.models, f"{family}Config")(**shape, **options)
    with torch.device(machine.device):
        model = getattr(fla.models, f"{family}ForCausalLM")(config)
    return training(model, lambda answer: answer.logits, size, machine, rows, {})


def training(
    model: nn.Module, logits: Callable[[Any], Tensor], size: str, machine: Machine, rows: int, told: dict[str, Any]
) -> Made:
    """A step: forward, cross-entropy, backward, AdamW."""
    scale = SCALES[size]
    tokens = torch.randint(scale.vocabulary, (rows, scale.length + 1), device=machine.device)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    forward = torch.compile(model) if machine.compile else model

    def step() -> Tensor:
        with torch.autocast(machine.device, machine.dtype):
            guessed = logits(forward(tokens[:, :-1])).flatten(0, 1)
            loss = F.cross_entropy(guessed, tokens[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Made(step, {"parameters": parameters, **told}, rows * scale.length)


def computed_by(model: SequenceModel, length: int, machine: Machine) -> dict[str, Any]:
    """What computes the memories and why; all layers are alike."""
    first = choices(model, length, machine.device, machine.dtype)[0]
    return {"ops": {memory: {"by": choice.name, "why": choice.why} for memory, choice in first._asdict().items()}}


def most(model: SequenceModel, length: int, rows: int) -> dict[str, Any]:
    """Upper bounds on its tokens per second."""
    bound = roofline(model, length, rows)
    return {"most_tokens_per_second": {chip.name: bound.tokens_per_second(chip) for chip in CHIPS}}
