"""How the next token is chosen and when to end, as data; no torch is needed to check it."""

from dataclasses import dataclass

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import too_small


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What to do with the model's answer."""

    tokens: int = 100
    """Tokens to generate at most."""
    temperature: float = 0.8
    """What logits are divided by before one token is drawn; 0: always the likeliest."""
    top_k: int | None = None
    """Draw among so many of the likeliest tokens."""
    top_p: float | None = None
    """Draw among the likeliest tokens that together have at least this probability."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these strings."""
    seed: int = 0
    """Row r draws from (seed, r), whatever stands in the other rows."""

    def __post_init__(self) -> None:
        wrong = too_small(self, {"tokens": 1, "temperature": 0, "top_k": 1})
        if self.temperature != self.temperature or self.temperature == float("inf"):
            wrong.append(f"temperature: a number is needed, got {self.temperature}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            wrong.append(f"top_p: a probability above 0 and up to 1 is needed, got {self.top_p}.")
        if isinstance(self.stop, str) or not all(isinstance(one, str) and one for one in self.stop):
            wrong.append(f"stop: a list of strings that are not empty is needed, got {self.stop!r}.")
        if wrong:
            raise ConfigError("\n".join(wrong))
