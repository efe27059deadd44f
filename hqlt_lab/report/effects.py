"""What each factor of a grid does by itself, and with each other one."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One level of a factor against its first level, or how two such effects depend on each other."""

    levels: tuple[str, ...]  # ("mixer=sum",) is a main effect, ("arm=delta", "mixer=sum") an interaction
    against: tuple[str, ...]  # the first level of each factor
    n: int  # seeds
    mean: float
    low: float | None = None  # Holm-corrected interval over seeds
    high: float | None = None
    confidence: float = 0.95
    p: float | None = None
