"""Softmax windows of a model that differ from the declared ones, as when they are drawn in training.

A window takes the place of the option `window` of each timing with a softmax window: with delayed_stream the delay
follows, with delayed_chunk the chunk.  Layers with full attention, and layers without softmax, are not changed.
"""

from typing import Any

from torch import nn

from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.registry import build, options, parse_spec


def set_windows(model: nn.Module, window: int | None) -> None:
    """Set the window of each layer whose softmax has one, or with None the declared windows."""
    for memory in model.modules():
        if isinstance(memory, HybridMemory) and has_softmax_window(memory):
            name, declared = parse_spec("timing", memory.component_specs["timing"])
            replaced: dict[str, Any] = {} if window is None else {"window": window}
            memory.schedule = build("timing", {"name": name, **declared, **replaced})


def has_softmax_window(memory: HybridMemory) -> bool:
    """Return whether a layer has softmax, with a timing whose option `window` is not null."""
    name, declared = parse_spec("timing", memory.component_specs["timing"])
    option = options("timing", name).get("window")
    has_window = option is not None and declared.get("window", option.default) is not None
    return has_window and "kv" in memory.mixer.reads
