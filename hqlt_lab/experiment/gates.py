"""Whether the gates of a rule from outside are gates, before anything trains.  The lab's own rules have tests."""

from typing import Any

from hqlt_lab.model.config import ModelConfig
from hqlt_lab.registry import blamed, build, find, split


def wrong_gates(model: Any) -> list[str]:
    """A sentence for each rule of a model whose gates do not fit, or that raises when it is asked for them."""
    used = [memory.specs["update_rule"] for memory in model.memories if memory.update_rule is not None]
    told = [f"model.update_rule: {said}" for spec in used if (said := wrong(spec, model.config))]
    return list(dict.fromkeys(told))


def wrong(spec: Any, config: ModelConfig) -> str:
    """Of one rule; empty if nothing is."""
    name, _ = split("update_rule", spec)
    if find("update_rule", name).__module__.startswith("hqlt_lab."):
        return ""
    try:
        told = misfit(spec, config)
    except Exception as error:
        blame = blamed(error)
        return str(blame) if blame and blame.permanent else ""  # else it is the machine's, and may be gone
    return f"of {name!r}, {told}" if told else ""


def misfit(spec: Any, config: ModelConfig) -> str:
    """What its gates lack, tried on a short stream; with numbers, as others would load torch's compiler."""
    import torch

    rule = build("update_rule", spec, width=config.width, heads=config.heads)
    rows, tokens = config.heads + 2, config.heads + 1  # all different, so that none stands for another
    stream = torch.linspace(-1, 1, rows * tokens * config.width).view(rows, tokens, config.width)
    with torch.no_grad():
        return str(rule.misfit(rule.gates(stream), rows, config.heads, tokens))
