"""What an agent is told that learns in a world: soft actor-critic over whole episodes.

How long, how fast and on how many episodes at once it learns stands in `train`, as for every other task; there a step
is one of the world.
"""

from dataclasses import dataclass, field

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import too_small


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """How an agent acts, remembers episodes and learns from them."""

    discount: float = 0.99
    """What a reward is worth one step earlier: gamma."""
    entropy: float = 0.1
    """What being undecided is worth, per nat and step: alpha."""
    target_rate: float = 0.005
    """How far the target critics move towards the critics with every update: tau."""
    hidden: list[int] = field(default_factory=lambda: [256, 256])
    """Inner widths of the policy and of each critic."""
    warmup_episodes: int = 10
    """Episodes of random actions before the first update."""
    updates_per_step: float = 0.25
    """Optimiser steps for every step in the world."""
    episodes_at_once: int = 1
    """Episodes that are lived side by side, between two turns of learning."""
    replay: int = 1_000_000
    """Steps that can be learned from: the latest, in whole episodes."""

    def __post_init__(self) -> None:
        least = {"warmup_episodes": 1, "episodes_at_once": 1, "replay": 1, "entropy": 0}
        wrong = too_small(self, least)
        if not 0 <= self.discount <= 1:
            wrong.append(f"discount: a number from 0 to 1 is needed, got {self.discount}.")
        wrong += [
            f"{name}: more than 0 is needed, got {getattr(self, name)}."
            for name in ("target_rate", "updates_per_step")
            if getattr(self, name) <= 0
        ]
        if self.target_rate > 1:
            wrong.append(f"target_rate: at most 1 is needed, got {self.target_rate}.")
        if any(width < 1 for width in self.hidden):
            wrong.append(f"hidden: widths of 1 or more are needed, got {self.hidden}.")
        if wrong:
            raise ConfigError("\n".join(wrong))
