"""The one condition on max_beta, shared by the delta family."""

from typing import Annotated

from hqlt_lab.errors import ConfigError

MaxBeta = Annotated[float, "The largest strength of a write, in (0, 2]; beyond 1 a step can turn a memory over."]


def check_max_beta(max_beta: float) -> float:
    """Beyond 2 the eigenvalue 1 - beta leaves [-1, 1] and the memory grows without bound."""
    if not 0 < max_beta <= 2:
        raise ConfigError(f"max_beta: a number in (0, 2] is needed, got {max_beta}.")
    return max_beta
