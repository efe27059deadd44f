"""The option `max_beta` of the delta family and its range."""

from typing import Annotated

from hqlt_lab.errors import ConfigError

MaxBeta = Annotated[float, "Largest write strength, in (0, 2]. Above 1 the eigenvalue 1 - beta can be negative."]


def check_max_beta(max_beta: float) -> float:
    """Return max_beta.  Raise ConfigError outside (0, 2]: above 2, 1 - beta can be below -1, and S diverges."""
    if not 0 < max_beta <= 2:
        raise ConfigError.at("max_beta", "out_of_range", f"a number in (0, 2] is needed, got {max_beta}.")
    return max_beta
