"""Sampling options: how the next token is chosen, and when to stop.  Validating them does not import torch."""

from dataclasses import dataclass

from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.registry import check_minimums


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are sampled from the model's logits."""

    tokens: int = 100
    """Maximal number of tokens to generate."""
    temperature: float = 0.8
    """Logits are divided by it before sampling; 0: always the most likely token."""
    top_k: int | None = None
    """Sample among this many of the most likely tokens."""
    top_p: float | None = None
    """Sample among the most likely tokens that together have at least this probability."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these strings."""
    seed: int = 0
    """Row r is sampled with the seed (seed, r), independently of the other rows."""

    def __post_init__(self) -> None:
        issues = check_minimums(self, {"tokens": 1, "temperature": 0, "top_k": 1})
        if self.temperature != self.temperature or self.temperature == float("inf"):
            issues.append(ConfigIssue("temperature", "not_a_number", f"a number is needed, got {self.temperature}."))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            message = f"a probability above 0 and up to 1 is needed, got {self.top_p}."
            issues.append(ConfigIssue("top_p", "out_of_range", message))
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            message = f"a list of strings that are not empty is needed, got {self.stop!r}."
            issues.append(ConfigIssue("stop", "not_a_list_of_strings", message))
        if issues:
            raise ConfigError(*issues)
